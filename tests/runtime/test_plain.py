"""The recorder in plain Python: it prints and writes what the other one does."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import rewriter
from artifacts import get
from exact_statistics import adversarial, check, contents, decode
from rewriter.instrumentation import probes
from rewriter.instrumentation.dialects.python import standalone_recorder
from rewriter.runtime import plain
from rewriter.runtime.gpu_kinds import gpu_kinds
from tables import options, row

SELECTIONS: list[dict[str, Any]] = [
    {"probe": "names,print,save"},
    {"probe": "nan,sync", "when": "both", "calls": "1"},
    {"probe": "names,nan,print", "args": "all"},
]


def run(name: str, selection: dict[str, Any], folder: Path, attach: str) -> None:
    """Call a recorded wrapper twice, and write a dump into a folder."""
    text = rewriter.instrument(get(name).path, rewriter.select(**selection)).source.decode()
    module = ModuleType("wrapper")
    exec(text.replace("rewriter.runtime import", f"{attach} import"), vars(module))

    def zeros(size: Any, stride: Any, dtype: Any) -> torch.Tensor:
        made = torch.empty_strided(size, stride, dtype=dtype)
        made.untyped_storage().fill_(0)
        return made

    module.empty_strided_cpu = zeros  # type: ignore[attr-defined]
    for seed in range(2):
        torch.manual_seed(seed)
        module.call(module.get_args())
    module._rw.close()


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.programs
@pytest.mark.usefixtures("vector_instructions")
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda x: x["probe"])
@pytest.mark.parametrize("name", ["cpu-torch2.13/mlp", "cpu-torch2.13/scatter"])
def test_it_prints_and_writes_what_the_recorder_does(
    name: str,
    selection: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folders, printed = [tmp_path / "recorder", tmp_path / "plain"], []
    for folder, attach in zip(folders, ("rewriter.runtime", "rewriter.runtime.plain"), strict=True):
        monkeypatch.setenv("REWRITER_DUMP", str(folder))
        run(name, selection, folder, attach)
        printed.append(capfd.readouterr())
    assert printed[0] == printed[1]
    files = [{x.relative_to(root) for x in root.rglob("*") if x.is_file()} for root in folders]
    assert files[0] == files[1] > set()
    for file in files[0]:
        ours, theirs = (root / file for root in folders)
        if file.suffix == ".jsonl":
            for one, other in zip(rows(ours), rows(theirs), strict=True):
                for key in {"mean", "std"} & one.keys():  # sums in another order
                    assert one[key] == pytest.approx(other[key], rel=1e-12, abs=1e-13)
                    other[key] = one[key]
                assert json.dumps(one) == json.dumps(other)
        elif file.suffix == ".pt":
            one, other = torch.load(ours), torch.load(theirs)
            assert torch.equal(one, other)
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        elif file.name == "run.json":
            of_a_run = {"pid", "thread", "started"}
            one, other = (json.loads(x.read_text()) for x in (ours, theirs))
            assert list(one) == list(other)
            assert {x: one[x] for x in one if x not in of_a_run} == {
                x: other[x] for x in other if x not in of_a_run
            }
        else:
            assert ours.read_bytes() == theirs.read_bytes()


CASES = adversarial()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [7, plain.BLOCK])
def test_statistics_agree_with_exact_arithmetic(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "BLOCK", block)
    tensor, row = CASES[name], plain.measure(CASES[name])
    row["std"] = math.inf if row["std"] == "inf" else row["std"]
    check(row, decode(contents(tensor), tensor.dtype), tensor.dtype)


def test_what_cannot_be_read_has_no_statistics() -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    assert plain.measure(freed) == plain.measure(torch.ones(2, device="meta")) == {}


def table(probe: str, **more: Any) -> dict[str, Any]:
    options = {"artifact": "w.py", "sha256": "", "version": "", "when": None, "format": "text"}
    return {**options, "probes": probe.split(","), "values": False, "args": "written", **more}


LAUNCH = {"launch": 3, "kernel": "k", "kind": "cpp", "repeats": False, "after": [["out", "b"]]}


@pytest.mark.parametrize(
    ("options", "variables", "missing"),
    [
        (table("print,hash"), {}, "hash"),
        (table("print", last=3), {}, "--keep"),
        (table("print", max_bytes="1G"), {}, "--max-bytes"),
        (table("print", dormant=True), {}, "--dormant"),
        (table("print", format="upstream"), {}, "--format upstream"),
        (table("print"), {"REWRITER_KEEP": "2"}, "REWRITER_KEEP"),
        (table("print"), {"REWRITER_CALLS": "x"}, "'x' is no call or range of calls"),
        ({}, {}, "KeyError"),
    ],
)
def test_what_it_has_not_is_said_once_and_the_wrapper_runs(
    options: dict[str, Any],
    variables: dict[str, str],
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    recorder = plain.attach(options, [LAUNCH])
    tensor = torch.ones(2)
    recorder.begin()
    recorder.after(3, tensor)
    assert recorder.allocated(0, tensor) is tensor
    assert not recorder.due()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("[rewriter] warning: no probes: ")
    assert missing in printed.err
    assert printed.err.count("\n") == 1


def test_a_probe_that_fails_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = plain.attach(table("print"), [LAUNCH])
    for _ in range(2):
        recorder.begin()
        recorder.after(3)  # a value is missing
        recorder.after(3, torch.ones(2))
    printed = capsys.readouterr()
    assert printed.err.count("warning: #3: ValueError: ") == 1
    assert len(printed.out.splitlines()) == 2


def test_names_alone_are_printed_while_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = plain.attach(table("names,print,time"), [{**LAUNCH, "before": []}])
    for is_captured in (True, False):
        monkeypatch.setattr(plain, "is_capturing", lambda now=is_captured: now)
        recorder.begin()
        recorder.before(3)
        recorder.after(3, torch.ones(2))
    printed = capsys.readouterr()
    first, *rest = printed.out.splitlines()
    assert first == "[rewriter 0] #3 before k"
    assert [line.split()[5] for line in rest] == ["before", "k", "after"]
    assert printed.err == (
        "[rewriter 0] warning: #3: nothing in a CUDA graph is recorded; names are printed when it "
        "is captured\n"
    )


def test_forks_are_not_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = plain.attach(table("print", directory=str(tmp_path)), [LAUNCH])
    recorder.begin()
    child = os.fork()
    if child == 0:
        recorder.after(3, torch.ones(2))
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "a fork of the probed process is not recorded" in printed.err
    assert (tmp_path / "rank0/run0/events.jsonl").read_bytes() == b""


def test_instrument_knows_what_it_has() -> None:
    assert plain.PROBES == probes.PLAIN
    assert plain.LACKS == probes.NOT_PLAIN
    standalone: dict[str, object] = {}
    exec(compile(standalone_recorder(), "plain.py", "exec"), standalone)
    assert standalone["GPU"] == gpu_kinds()
    source = Path(plain.__file__).read_text("utf-8")
    nodes = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.ImportFrom)]
    assert not any(node.level for node in nodes)


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_without_a_compiler_it_takes_the_place_of_the_recorder(tmp_path: Path) -> None:
    """What it lacks is refused, with the reason why there is no recorder."""
    table = [row(after=[["out", "y"]])]
    lines = [
        "import torch",
        "from rewriter.runtime import attach",
        *(
            f"one = attach({options(probe)!r}, {table!r}); one.begin(); one.after(0, torch.ones(2))"
            for probe in ("print", "hash")
        ),
    ]
    environment = {**os.environ, "CXX": "no-compiler", "REWRITER_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[rewriter 0] #0 after  k  out y  f32[2]  cpu  " + (
        "min 1 max 1 mean 1 std 0 nan 0 inf 0\n"
    )
    lacks, why = done.stderr.splitlines()
    assert "no probes: plain Python has no hash" in lacks
    assert "the recorder cannot be loaded: no C++ compiler" in why
