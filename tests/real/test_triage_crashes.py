"""Wrappers and packages with a kernel that dies or never ends: the launch is named, and its inputs.

The faults are in the text of the kernel, which is compiled as Inductor's own.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import comparisons
import rewriter
from caches import heed_interrupts
from capture import Compiled, Packaged
from harness import load
from loads import LOAD
from programs import document
from rewriter.cli import main
from rewriter.locate.types import Launch

pytestmark = pytest.mark.usefixtures("warm_python")
PYTHON = sys.executable  # not warm: who gets a signal is to be the command itself

FAULTS = {
    "segfault": "*(volatile int*)0 = 1;",
    # Without work for the processor: a system call that waits.
    "loop": "for (volatile int spin = 1; spin;) usleep(10000);",
}
_KERNEL = re.compile(r'extern "C"\s+void\s+(?:cpp_fused\w*|kernel)\([^)]*\)\s*\{')


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planted(source: str, fault: str) -> str:
    """A wrapper, or the kernels of a package, with the fault in the last kernel."""
    last = list(_KERNEL.finditer(source))[-1]
    return f"{source[: last.end()]} {FAULTS[fault]}{source[last.end() :]}"


def write(compiled: Callable[[str], Compiled], change: Callable[[str], str]) -> list[str]:
    """A changed wrapper and its inputs; how the command line names them."""
    graph = compiled("mlp").graphs[0]
    source = change(graph.source)
    assert source != graph.source
    Path("output_code.py").write_text(source)
    torch.save(graph.args, "inputs.pt")
    return ["output_code.py", "--args", "inputs.pt", "-d", "dump"]


def last_kernel(path: str) -> tuple[Launch, dict[str, int]]:
    """The launch that has the fault, and which launches wrote what it reads."""
    found = rewriter.open(path).launches
    culprit = next(launch for launch in found if "softmax" in launch.kernel)
    reads = [argument for argument in culprit.args if argument.role != "out"]
    writers = {
        argument.name: launch.index
        for argument in reads
        for launch in found[: culprit.index]
        for written in launch.args
        if written.role != "in" and written.buffer == argument.buffer
    }
    return culprit, writers


def check(verdict: dict[str, Any], path: str) -> None:
    """The right launch, its values with their shapes, and where they came from."""
    culprit, writers = last_kernel(path)
    assert writers
    assert (verdict["launch"], verdict["kernel"]) == (culprit.index, culprit.kernel)
    assert verdict["state"] == "running"
    read = {row["arg"]: row for row in verdict["arguments"] if row["role"] != "out"}
    assert len(read) == sum(argument.role != "out" for argument in culprit.args)
    for name, row in read.items():
        assert row["dtype"] == "float32"
        assert row["shape"][-1] == 16
        assert row["nan"] == 0
        if row["producer"] is None:
            # A weight of a package: neither an input nor written by a launch.
            assert path.endswith(".pt2")
            assert name not in writers
            continue
        assert row["producer"]["launch"] == writers.get(name)
        assert row["producer"]["value"]["mean"] == row["mean"]


def test_what_runs_needs_no_triage(
    mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["triage", str(mlp_wrapper), "-d", "dump"]) == 0
    output = capfd.readouterr()
    first, *_, last = output.out.splitlines()
    assert first.startswith("1. without changes: ran to its end")
    assert last == "it ran; nothing crashed in 1 run"
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_segfaults(compiled: Callable[[str], Compiled]) -> None:
    words = write(compiled, lambda source: planted(source, "segfault"))
    found = document("triage", *words, code=1)
    assert [step["crashed"] for step in found["steps"]] == [True, True]
    assert "SIGSEGV" in found["steps"][0]["how"]
    check(found["verdict"], words[0])
    assert found["verdict"]["ended"]["signal"] == "SIGSEGV"
    assert found["next"].startswith("rewriter run output_code.py --args inputs.pt --launches ")


def test_a_kernel_that_never_ends(compiled: Callable[[str], Compiled], tmp_path: Path) -> None:
    words = write(compiled, lambda source: planted(source, "loop"))
    load(Path(words[0]).read_bytes(), tmp_path)  # compiled now, not within the time
    for limit in (2, 5, 15, 60):  # a machine with much to do begins late
        options = ["--timeout", str(limit), "--probe", "names,print", "--overwrite"]
        found = document("run", *words, *options, code=1)
        assert found["timed_out"]
        if (found["verdict"] or {}).get("launch") is not None:
            break
    check(found["verdict"], words[0])
    assert found["verdict"]["headline"].startswith(f"still running after {limit} s in launch #3 ")
    assert found["next"].endswith("--probe print,save --args all")


def test_an_operator_that_refuses_its_inputs(
    compiled: Callable[[str], Compiled], capfd: pytest.CaptureFixture[str]
) -> None:
    """The second product, given a vector for its weight."""
    index = comparisons.find(compiled("mlp").graphs[0].source, "addmm", 1)
    words = write(compiled, lambda s: comparisons.argument_changed(s, index, 2, "arg5_1"))
    assert main(["run", *words, "--probe", "names,print"]) == 1
    output = capfd.readouterr()
    assert f" in launch #{index} extern_kernels.addmm" in output.out
    assert "RuntimeError: " in output.out.partition("verdict: ")[2].splitlines()[0]
    assert "in    arg5_1  f32[16] stride [1]" in output.out.partition("verdict: ")[2]
    assert "crashed in" in output.err


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["segfault", "loop"])
def test_a_kernel_of_a_cpp_wrapper(fault: str, compiled_cpp: Callable[[str], Compiled]) -> None:
    words = write(compiled_cpp, lambda source: planted(source, fault))
    limit = [] if fault == "segfault" else ["--timeout", "60"]
    found = document("run", *words, "--probe", "names,print", *limit, code=1)
    assert found["timed_out"] == (fault == "loop")
    check(found["verdict"], words[0])


def test_a_kernel_of_an_instrumented_package(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is one that other tests build; its last kernel comes from somewhere else."""
    plain, path = packaged("mlp"), str(tmp_path / "probed.pt2")
    probes = "hash,inputs,names,print,save"
    # As above: weights are known before it alone.
    words = ["--probe", probes, "--args", "all", "-o", path]
    assert main(["instrument", str(plain.path), *words]) == 0
    kernel = last_kernel(path)[0].kernel
    Path("kernel.c").write_text(f"void {kernel}(void) {{ *(volatile int*)0 = 1; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "kernel.so"))
    torch.save(list(plain.inputs["model"]), "inputs.pt")
    found = document("run", path, "--args", "inputs.pt", "-d", "dump", code=1)
    assert found["signal"] == 11
    check(found["verdict"], path)


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["a.py", "b.py"], "several-artifacts"),
        (["--seed", "3", "--", "python"], "idle-options"),
        (["--", "no-such-program"], "no-program"),
        (["no-such-file.py"], "unreadable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_requests_that_are_refused(
    words: list[str], slug: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["triage", *words]) == 2
    assert f"error[{slug}]" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_is_a_number_of_seconds(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.py", "--timeout", text]) == 2
    assert "--timeout" in capfd.readouterr().err


def test_inputs_that_do_not_fit_are_named(
    mlp_wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    args = torch.load(mlp_wrapper.parent / "inputs.pt", weights_only=True)
    torch.save([*args[:2], args[2].new_zeros(9, 32), *args[3:]], "wrong.pt")
    words = ["--args", "wrong.pt", "--probe", "inputs,time", "-d", "dump"]
    assert main(["run", str(mlp_wrapper), *words]) == 1
    output = capfd.readouterr()
    assert "unexpected input arg2_1: size [9, 32], expected [8, 32]" in output.out
    assert "No probed launch had begun." in output.err


def test_launches_are_timed(mlp_wrapper: Path) -> None:
    found = document("run", mlp_wrapper, "--probe", "time", "-d", "dump")
    assert found["verdict"] is None
    assert {timed["launch"] for timed in found["times"]} == {0, 1, 2, 3, 4}
    assert {(timed["runs"], timed["clock"]) for timed in found["times"]} == {(1, "host")}
    assert sum(timed["share"] for timed in found["times"]) == pytest.approx(1, abs=1e-4)
    trace = json.loads(Path(found["trace"]).read_text())["traceEvents"]
    events = [event for event in trace if event["ph"] == "X"]
    assert [event["args"]["launch"] for event in events] == [0, 1, 2, 3, 4]
    for first, second in itertools.pairwise(events):
        assert first["ts"] + first["dur"] <= second["ts"]


@pytest.fixture
def _may_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a program runs a second time, with each launch waited for, on every machine."""
    monkeypatch.setattr("rewriter.commands._triage._GPUS", [Path("/")])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_program_ends_with_this_one(number: int) -> None:
    """It is in a group of its own: nobody else would tell it. SIGINT is in `test_programs.py`."""
    process = subprocess.Popen(
        [PYTHON, "-m", "rewriter", "triage", "--", "sh", "-c", "echo $$ >&2; sleep 60"],
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
        text=True,
    )
    assert process.stderr is not None
    program = int(process.stderr.readline())
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


@pytest.mark.usefixtures("_may_use_a_gpu")
def test_a_program_that_crashes_without_probes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    dies = "'REWRITER_DUMP' in os.environ or os.kill(os.getpid(), 9)"
    (tmp_path / "program.py").write_text(f"{LOAD}\nload()\n{dies}")
    program = [sys.executable, str(tmp_path / "program.py")]
    assert main(["triage", "--json", "--", *program]) == 1
    output = capfd.readouterr()
    assert "verdict: it crashes without probes only" in output.err
    assert output.err.count("crashed: signal SIGKILL") == 2
    assert "--blocking" in output.err
    found = json.loads(output.out)
    assert [step["crashed"] for step in found["steps"]] == [True, True]
    assert (found["run"]["ended"]["code"], found["run"]["next"]) == (0, "")


@pytest.mark.usefixtures("_may_use_a_gpu")
def test_one_object_where_nothing_is_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    program = ["sh", "-c", 'test -n "$REWRITER_DUMP" || exit 3']
    assert main(["triage", "--json", "--", *program]) == 2
    output = capfd.readouterr()
    assert "error[nothing-compiled]" in output.err
    found = json.loads(output.out)
    assert [step["how"] for step in found["steps"]] == ["crashed: exit code 3"] * 2
    assert found["run"] is None


@pytest.mark.usefixtures("_may_use_a_gpu")
def test_a_program_that_ends_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["triage", "--", "sh", "-c", "echo hello"]) == 0
    output = capfd.readouterr()
    assert output.out.splitlines()[-1] == "it ran; nothing crashed in 2 runs"
    assert "hello" in output.err
