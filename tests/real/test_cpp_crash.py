"""A C++ wrapper that dies: where ours say the names (`test_cpp_programs.py`), those of PyTorch's
printer are lost with the buffer of a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capture import compile_case
from models import MODELS

pytestmark = pytest.mark.usefixtures("warm_python")

_KERNEL = re.compile(r'(extern "C"\s+void\s+cpp_fused\w*softmax\w*\([^)]*\)\s*\{)')


def deadly(source: str) -> str:
    """The wrapper with a kernel, neither the first nor the last, that aborts."""
    assert len(_KERNEL.findall(source)) == 1
    return _KERNEL.sub(r"\1 std::abort();", source)


def run(file: Path, args: list[object]) -> subprocess.CompletedProcess[str]:
    """`rewriter run` with pipes for its output."""
    torch.save(args, file.with_suffix(".pt"))
    inputs = ["--args", str(file.with_suffix(".pt"))]
    command = [sys.executable, "-m", "rewriter", "run", str(file), *inputs]
    # With this set, CPython takes the buffer away from C's standard output, too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=file.parent, env=environment
    )


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
