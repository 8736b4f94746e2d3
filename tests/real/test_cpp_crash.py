"""A C++ wrapper that dies: the names say where, even if standard output is a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rewriter
from capture import Compiled, compile_case
from models import MODELS

pytestmark = pytest.mark.usefixtures("warm_python")

_KERNEL = re.compile(r'(extern "C"\s+void\s+cpp_fused\w*softmax\w*\([^)]*\)\s*\{)')


def deadly(source: str) -> str:
    """The wrapper with a kernel, neither the first nor the last, that aborts."""
    assert len(_KERNEL.findall(source)) == 1
    return _KERNEL.sub(r"\1 std::abort();", source)


def run(file: Path, args: list[object], *options: str) -> subprocess.CompletedProcess[str]:
    """`rewriter run` with pipes for its output."""
    torch.save(args, file.with_suffix(".pt"))
    inputs = ["--args", str(file.with_suffix(".pt"))]
    command = [sys.executable, "-m", "rewriter", "run", str(file), *inputs, *options]
    # With this set, CPython takes the buffer away from C's standard output, too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=file.parent, env=environment
    )


@pytest.mark.exhaustive
def test_names_survive_an_abort(compiled_cpp: Callable[[str], Compiled], tmp_path: Path) -> None:
    """And what was recorded is read: what the kernel was given, and who wrote that."""
    graph = compiled_cpp("mlp").graphs[0]
    file = tmp_path / "output_code.py"
    file.write_text(deadly(graph.source))
    launches = rewriter.open(file).launches
    (culprit,) = (launch for launch in launches if "softmax" in launch.kernel)
    assert 0 < culprit.index < len(launches) - 1

    ran = run(file, graph.args, "--probe", "names,print", "-d", str(tmp_path / "dump"))

    assert ran.returncode == 1
    names = [
        line for line in ran.stdout.splitlines() if re.match(r"\[rewriter 0\] #\d+ before", line)
    ]
    assert names == [
        f"[rewriter 0] #{launch.index} before {launch.kernel}"
        for launch in launches[: culprit.index + 1]
    ]
    assert "signal SIGABRT" in ran.stderr
    _, _, verdict = ran.stdout.partition("verdict: ")
    assert f"launch #{culprit.index} {culprit.kernel}" in verdict.splitlines()[0]
    assert re.search(r"  f32\[8, 16\] .*  min ", verdict)
    assert f"written by #{culprit.index - 1} " in verdict


@pytest.mark.exhaustive
def test_upstream_loses_its_names(tmp_path: Path) -> None:
    """The comparison that the README makes: PyTorch's printer at level 3, the same abort."""
    printer = {"aot_inductor.debug_intermediate_value_printer": "3"}
    graph = compile_case(MODELS["mlp"]("cpu"), cpp_wrapper=True, **printer).graphs[0]
    assert graph.source.count("before_launch: cpp_fused") == 2
    file = tmp_path / "output_code.py"

    file.write_text(graph.source)
    alive = run(file, graph.args)
    assert alive.returncode == 0
    assert "before_launch: cpp_fused" in alive.stdout

    file.write_text(deadly(graph.source))
    dead = run(file, graph.args)
    assert dead.returncode == 1
    assert "before_launch" not in dead.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("probes", ["names", "names,print,save"])
def test_a_crash_leaves_a_dump_that_can_be_read(
    probes: str, compiled_cpp: Callable[[str], Compiled], tmp_path: Path
) -> None:
    graph = compiled_cpp("mlp").graphs[0]
    file = tmp_path / "output_code.py"
    file.write_text(deadly(graph.source))
    ran = rewriter.run(
        file,
        rewriter.select(probes),
        args=_saved(graph.args, tmp_path),
        dump=tmp_path / "dump",
    )
    assert (ran.code, ran.ended.signal) == (1, 6)
    last = [row for row in ran.events if "launch" in row][-1]
    assert "softmax" in ran.launches[last["launch"]].kernel
    assert last["phase"] == "before"


def _saved(args: list[object], folder: Path) -> Path:
    torch.save(args, folder / "inputs.pt")
    return folder / "inputs.pt"
