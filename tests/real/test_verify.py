"""`rewriter verify` on wrappers that are compiled here: clean ones agree, faults are named."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from compilations import Compilations
from rewriter.cli import main
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import TensorRow

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive

PROGRAM = """
import sys

import torch
import torch._inductor.config as config


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.first, self.second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 16)
        self.last = torch.nn.LayerNorm(16)

    def forward(self, x, index):
        x = self.norm(x + self.embedding(index))
        h = torch.nn.functional.gelu(self.first(x))
        y = self.last(self.second(h))
        p = torch.softmax(y, -1)
        return p.sum(-1), (y * p).half(), y.argmax(-1)


torch.manual_seed(0)
with torch.no_grad(), config.patch(cpp_wrapper="cpp_wrapper" in sys.argv):
    print(torch.compile(Model())(torch.randn(40, 32), torch.randint(0, 10, (40,)))[0].sum())
"""
# What replaces what in the text of the wrapper, and the launch that is wrong then.
FAULTS = {
    "another operator": ("tmp3 * tmp10;", "tmp3 + tmp10;", 2),
    "a constant by 1e-4": ("(0.7071067811865476)", "(0.7071767811865476)", 2),
    "a scale by 1e-3": ("(64, 16), (1, 64), 0), alpha=1", "(64, 16), (1, 64), 0), alpha=1.001", 3),
    "wrong strides": ("(32, 64), (1, 32), 0)", "(32, 64), (64, 1), 0)", 1),
    "a sum instead of a mean": ("tmp3.store(in_out_ptr0", "tmp0.store(in_out_ptr0", 0),
    "a tail that is dropped": ("int64_t>(2560L); x0+", "int64_t>(2544L); x0+", 2),
}  # fmt: skip


def _compile(folder: Path, python: str) -> str:
    (folder / "model.py").write_text(PROGRAM)
    programs.run(python, "model.py", "python", cwd=folder, TORCHINDUCTOR_CACHE_DIR=folder / "cache")
    return str(folder)


@pytest.fixture(scope="session")
def compiled_cache(compilations: Compilations, warm_executable: str) -> Path:
    made = compilations.value_with_files(
        lambda folder: _compile(folder, warm_executable), "verify", text=PROGRAM
    )
    return Path(made)


@pytest.fixture
def wrapper(compiled_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wrapper in a copy of the cache that it was compiled into."""
    shutil.copytree(compiled_cache / "cache", tmp_path / "cache")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return next(x for x in (tmp_path / "cache").glob("??/c*.py") if "addmm" in x.read_text())


def plant(wrapper: Path, *names: str) -> None:
    text = wrapper.read_text()
    for name in names:
        old, new, _ = FAULTS[name]
        assert old in text, name
        text = text.replace(old, new, 1)
    wrapper.write_text(text)


def test_a_clean_wrapper_agrees(wrapper: Path) -> None:
    found = programs.document("verify", str(wrapper), "-d", "clean.dump")
    assert (found["differ"], found["verdict"]) == (0, None)
    assert found["coverage"] == 1.0
    assert {launch["route"] for launch in found["launches"]} == {"graph"}
    assert all("model.py" in line for launch in found["launches"] for line in launch["lines"])
    # A dump is judged again without a run, and another result is found.
    saved = next(Path("clean.dump").glob("rank0/run0/000002/after*buf5*.pt"))
    original = saved.read_bytes()
    tensor = torch.load(saved)
    tensor[3, 5] += 1e-3
    torch.save(tensor, saved)
    again = programs.document("verify", "clean.dump", code=1)
    assert again["finding"]["launch"] == 2
    assert again["finding"]["results"][0]["at"] == [3, 5]
    # Without the graph, as of a lone file, calls are left.
    saved.write_bytes(original)
    shutil.rmtree("clean.dump/graphs")
    alone = programs.document("verify", "clean.dump")
    assert [x["route"] for x in alone["launches"]] == ["", "operator", "", "operator", ""]
    assert "cache" in alone["launches"][0]["reason"]


def _lose(dump: str, lost: Collection[Any]) -> str:
    """A copy of a dump without these launches, and without these files of values."""
    part = Path(f"part of {dump}")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(dump, part)
    (run,) = open_dump(part).runs
    (table,) = part.rglob("launches.json")
    facts = json.loads(table.read_text())
    facts["launches"] = [x for x in facts["launches"] if x["launch"] not in lost]
    table.write_text(json.dumps(facts))
    events = run.path / "events.jsonl"
    rows = events.read_text().splitlines(keepends=True)
    events.write_text("".join(x for x in rows if json.loads(x).get("launch") not in lost))
    for file in lost:
        (run.path / str(file)).unlink(missing_ok=True)
    return str(part)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=exhaustive)])
def test_nothing_is_accused_where_launches_or_values_were_not_recorded(
    size: int, wrapper: Path
) -> None:
    programs.document("verify", str(wrapper), "-d", "clean.dump")
    (run,) = open_dump("clean.dump").runs
    files = [str(x.relative_to(run.path)) for x in sorted(run.path.glob("0*/before*.pt"))]
    assert (len(run.table), len(files)) == (5, 18)
    for lost in combinations([*run.table, *files], size):
        found = programs.document("diagnose", _lose("clean.dump", lost))
        assert not found["findings"], lost


def test_launches_with_faults_differ_and_no_other(
    wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = ("a constant by 1e-4", "a scale by 1e-3", "wrong strides", "a sum instead of a mean")
    plant(wrapper, *planted)
    found = programs.document("verify", str(wrapper), code=1)
    differing = [x["launch"] for x in found["launches"] if x["outcome"] == "differs"]
    assert differing == sorted(FAULTS[name][2] for name in planted)
    assert found["finding"]["launch"] == 0
    assert "#0 cpp_fused" in found["verdict"]


def test_many_launches_have_few_rows_and_an_interrupt_says_what_is_known(
    wrapper: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewriter.commands import _output
    from rewriter.commands import _verify as _verify_command
    from rewriter.diagnosis.verification import threads

    plant(wrapper, "a sum instead of a mean")
    monkeypatch.setattr(threads, "_SMALL", -1)  # launch by launch
    monkeypatch.setattr(_output, "_SILENCE", -1)
    assert main(["verify", str(wrapper), "-d", "values.dump"]) == 1
    told = capfd.readouterr().err
    assert [x for x in told.splitlines() if " of 5 launches" in x][:2] == [
        "1 of 5 launches", "2 of 5 launches"
    ]  # fmt: skip
    monkeypatch.setattr(_verify_command, "_ROWS", 4)
    assert main(["verify", "values.dump"]) == 1
    head, row, *rest = capfd.readouterr().out.splitlines()
    assert (head.split()[:2], row.split()[0]) == (["#", "kernel"], "#0")
    assert rest[0] == "the table has those that differ, 1 of 5 launches; --json has all"
    tell = _output.message

    def interrupt(text: str, *more: str) -> None:
        if text == "2 of 5 launches":
            raise KeyboardInterrupt
        tell(text, *more)

    monkeypatch.setattr(_output, "message", interrupt)
    assert main(["verify", "values.dump"]) == 130
    message = capfd.readouterr().err.splitlines()[-1]
    assert "rewriter: interrupted: 2 of 5 launches were looked at; #0 cpp_fused" in message
    assert message.endswith("does not compute what it claims")


@exhaustive
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first(
    name: str, wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(wrapper, name)
    found = programs.document("verify", str(wrapper), code=1)
    assert found["finding"]["launch"] == FAULTS[name][2]
    assert found["differ"] == 1


def test_where_the_graph_gives_nan_that_is_why_a_launch_is_not_checked(
    wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    programs.document("verify", str(wrapper), "-d", "clean.dump")
    (run,) = open_dump("clean.dump").runs
    given = [torch.load(run.path / row.file) for row in run.inputs if isinstance(row, TensorRow)]
    torch.save([x * math.nan if x.is_floating_point() else x for x in given], "nan.pt")
    found = programs.document("verify", str(wrapper), "--args", "nan.pt")
    unchecked = [x["reason"] for x in found["launches"] if x["outcome"] == "unchecked"]
    assert unchecked
    assert all("it is NaN, or" in reason for reason in unchecked), unchecked


@exhaustive
@pytest.mark.parametrize("kind", ["python", "cpp_wrapper"])
def test_a_program_agrees(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(PROGRAM)
    found = programs.document("verify", "-d", "D", "--", sys.executable, "model.py", kind)
    assert found["differ"] == 0
    assert found["coverage"] >= 0.8


# The values of several nodes are equal; inside of the condition, another input is the first one.
ALIKE = """
import torch


@torch.compile
def power(w, u):
    v = torch.ones(8, 8)
    for _ in range(3):
        v = w @ v
        v = v / v.max()
    return v, u @ v


def sine(a, b):
    return (a.sin() @ b) @ b.t()


@torch.compile(dynamic=True)
def choice(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: (a @ b).relu() @ b, sine, (x, w)) @ w


torch.manual_seed(0)
with torch.no_grad():
    power(torch.eye(8) * 2, torch.randn(8, 8))
    choice(-torch.randn(8, 8).abs(), torch.randn(8, 8))
"""


@exhaustive
def test_calls_of_one_operator_whose_values_are_alike_agree(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(ALIKE)
    found = programs.document("verify", "-d", "D", "--", sys.executable, "model.py")
    assert found["differ"] == 0
    assert found["coverage"] >= 0.8


@exhaustive
def test_kernels_are_the_same_again_and_without_vectors(
    wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = programs.document("verify", str(wrapper), "--independent")
    assert found["differ"] == 0
    kernels = [x["independent"] for x in found["launches"] if x["kind"] == "cpp"]
    assert kernels
    assert all(one == ["deterministic", "scalar agrees"] for one in kernels)
    others = [x["independent"] for x in found["launches"] if x["kind"] != "cpp"]
    assert all(one == ["deterministic"] for one in others)
