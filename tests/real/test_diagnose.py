"""`rewriter diagnose` on a wrapper that is compiled here, with and without faults."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from programs import document
from rewriter.cli import main
from test_verify import FAULTS, PROGRAM, compiled_cache, wrapper

__all__ = ["compiled_cache", "wrapper"]  # fixtures

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive

GELU = "        cpp_fused_gelu_1(buf5)\n"
# What replaces what in the text, the kind of the finding, and the launch that is named.
STRUCTURE = {
    "missing": (GELU, "", "missing", 2),
    "freed": (GELU, f"        del buf5\n{GELU}", "freed", 2),
    "released": (GELU, f"        buf5.untyped_storage().resize_(0)\n{GELU}", "crash", 2),
    "stale": (
        "buf6 = empty_strided_cpu((40, 16), (16, 1), torch.float32)", "buf6 = buf5", "stale", 3,
    ),
}  # fmt: skip


def _change(wrapper: Path, old: str, new: str) -> None:
    text = wrapper.read_text()
    assert old in text
    wrapper.write_text(text.replace(old, new, 1))


def test_one_run_rules_out_what_is_not_wrong_and_names_what_is(wrapper: Path) -> None:
    clean = document("diagnose", str(wrapper), "-d", "clean", code=0)
    assert clean["finding"] is None
    assert [one["what"] for one in clean["runs"]] == ["hash,inputs,names,print,save"]
    assert [line.partition(":")[0] for line in clean["ruled_out"]] == [
        "a crash or a hang",
        "inputs that the wrapper was not compiled for",
        "NaN",
        "memory read before it is written, or after it is reused or freed",
        "a missing launch of a kernel",
        "values that change between launches",
        "wrong outputs",
        "wrong kernels",
    ]
    assert json.loads(Path("clean/diagnosis.json").read_text()) == clean
    # What it returned is right: nothing else is asked then, also of the dump.
    files = sorted(Path("clean/values").glob("rank0/run0/000004/after*buf1[456]_cpu.pt"))
    right = [torch.load(file) for file in files]
    torch.save(right, "right.pt")
    again = document("diagnose", "clean/values", "--expected", "right.pt", code=0)
    assert len(again["ruled_out"]) == 3
    # Another value than the call was given: each launch computes what it claims, the call does not.
    given = Path("clean/values/rank0/run0/inputs/aoti_model_inputs_arg2_1_cpu.pt")
    original = given.read_bytes()
    tensor = torch.load(given)
    given.unlink()  # one file stands for values that are the same
    torch.save(tensor.flip(0), given)
    events = Path("clean/values/rank0/run0/events.jsonl")
    recorded = events.read_text()
    rows = [json.loads(line) for line in recorded.splitlines()]
    (row,) = (x for x in rows if x.get("file", "").endswith(f"inputs/{given.name}"))
    row["fingerprint"] = "0" * 32
    events.write_text("".join(f"{json.dumps(x)}\n" for x in rows))
    changed = document("diagnose", "clean/values", code=1)
    assert [one["kind"] for one in changed["findings"]] == ["corrupted", "wrong", "outputs"]
    assert {one["launch"] for one in changed["findings"]} == {0, None}
    given.write_bytes(original)
    events.write_text(recorded)
    # A fault, with the outputs that are right.
    old, new, launch = FAULTS["another operator"]
    _change(wrapper, old, new)
    found = document("diagnose", str(wrapper), "-d", "bad", "--expected", "right.pt", code=1)
    assert (found["finding"]["kind"], found["finding"]["launch"]) == ("wrong", launch)
    assert [one["kind"] for one in found["findings"]] == ["wrong", "outputs"]
    assert found["next"] == "rewriter repro bad/values --launch 2"
    assert main(found["next"].split()[1:]) == 0
    assert "model.py:" in found["headline"]
    # Also where a launch is wrong, the call is compared with its graph if that is asked for.
    eager = document("diagnose", "bad/values", "--against", "eager", code=1)
    assert (eager["finding"]["kind"], eager["finding"]["launch"]) == ("wrong", launch)
    assert eager["findings"][-1]["kind"] == "outputs"
    assert "though no launch" not in eager["findings"][-1]["headline"]
    # Against the run that was right it is the same launch.
    parted = document("diagnose", "bad/values", "--against", "clean/values", code=1)
    assert {one["launch"] for one in parted["findings"]} == {launch}
    assert [one["kind"] for one in parted["findings"]] == ["wrong", "differs"]


@pytest.mark.parametrize(
    "name", ["freed", *(pytest.param(x, marks=exhaustive) for x in STRUCTURE if x != "freed")]
)
def test_memory_that_is_gone_is_named(name: str, wrapper: Path) -> None:
    old, new, kind, launch = STRUCTURE[name]
    _change(wrapper, old, new)
    found = document("diagnose", str(wrapper), "-d", "bad", code=1)
    assert (found["finding"]["kind"], found["finding"]["launch"]) == (kind, launch)


def test_a_program_that_dies_of_a_store_out_of_bounds(wrapper: Path) -> None:
    """It dies somewhere else, as where an allocator finds its own memory overwritten."""
    text = wrapper.read_text()
    assert text.count("2560L") == 2  # of one kernel, for 2,560 elements
    wrapper.write_text(text.replace("2560L", "2576L"))
    _change(wrapper, "        return (", "        __import__('os').abort()\n        return (")
    found = document("diagnose", str(wrapper), "-d", "bad", code=1)
    assert (found["finding"]["kind"], found["finding"]["launch"]) == ("bounds", 2)
    assert "out of bounds: directly behind buf" in found["headline"]
    assert [one["kind"] for one in found["findings"]] == ["bounds", "crash"]
    assert [one["what"] for one in found["runs"]] == ["hash,inputs,names,print,save", "bounds"]


def test_a_program_that_dies_in_one_run_only(wrapper: Path, tmp_path: Path) -> None:
    """Such as where its heap is damaged: what the run left that died is not all well."""
    dies = "import os, pathlib\nif pathlib.Path('ran').exists(): os.abort()\n"
    (tmp_path / "model.py").write_text(f"{PROGRAM}{dies}pathlib.Path('ran').touch()\n")
    found = document("diagnose", "-d", "bad", "--", sys.executable, "model.py", "python", code=1)
    assert found["finding"]["kind"] == "crash"
    assert "signal SIGABRT" in found["headline"]
    outcomes = [one["outcome"] for one in found["runs"]]
    assert outcomes == ["ran to its end", "signal SIGABRT", "signal SIGABRT"]


@exhaustive
def test_an_overwritten_argument_shows_in_what_the_call_returns(wrapper: Path) -> None:
    """Each launch computes what it claims; the call does not."""
    # The first product is given the weight of the second one's bias, of the same type and size.
    _change(wrapper, "extern_kernels.addmm(arg9_1, buf3,", "extern_kernels.addmm(arg9_1 * 2, buf3,")
    found = document("diagnose", str(wrapper), "-d", "bad", code=1)
    assert found["finding"]["launch"] == 1


@exhaustive
def test_a_program_is_run_for_its_health_and_for_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    clean = document("diagnose", "-d", "clean", "--", sys.executable, "model.py", code=0)
    assert [one["what"] for one in clean["runs"]] == [
        "inputs,names,print",
        "hash,inputs,names,print,save",
    ]
    path = next(x for x in (tmp_path / "cache").glob("??/c*.py") if "addmm" in x.read_text())
    old, new, launch = FAULTS["a constant by 1e-4"]
    _change(path, old, new)
    found = document("diagnose", "-d", "bad", "--", sys.executable, "model.py", code=1)
    assert (found["finding"]["kind"], found["finding"]["launch"]) == ("wrong", launch)
    # Its own check may have seen that: it exits with 1 then.
    with (tmp_path / "model.py").open("a") as program:
        program.write("\nraise SystemExit(1)\n")
    found = document("diagnose", "-d", "exit", "--", sys.executable, "model.py", code=1)
    assert (found["finding"]["kind"], found["finding"]["launch"]) == ("wrong", launch)
    _change(path, new, old)
    found = document("diagnose", "-d", "own", "--", sys.executable, "model.py", code=1)
    assert (found["finding"]["kind"], len(found["runs"])) == ("crash", 2)
    assert found["next"] == f"rewriter bisect -- {sys.executable} model.py"


@pytest.mark.parametrize(
    ("command", "slug"),
    [
        (["--against", "none.py"], "unreadable"),
        (["--expected", "none.pt"], "unreadable"),
        (["--graph", "none"], "no-graph"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    command: list[str], slug: str, wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir())
    assert main(["diagnose", str(wrapper), *command]) == 2
    assert f"error[{slug}]" in capfd.readouterr().err
    assert sorted(os.listdir()) == before


def test_outputs_of_no_call_leave_nothing_behind(wrapper: Path) -> None:
    """That they are those of no call is seen after the run."""
    torch.save(torch.ones(3), "right.pt")
    before = sorted(os.listdir())
    assert main(["diagnose", str(wrapper), "-d", "bad", "--expected", "right.pt"]) == 2
    assert sorted(os.listdir()) == before
