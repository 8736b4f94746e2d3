"""A C++ wrapper that dies: where ours say the names (`test_cpp_programs.py`), those of PyTorch's
printer are lost with the buffer of a pipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from capture import compile_case
from models import MODELS

pytestmark = pytest.mark.usefixtures("warm_python")

_KERNEL = re.compile(r'(extern "C"\s+void\s+cpp_fused\w*softmax\w*\([^)]*\)\s*\{)')


def deadly(source: str) -> str:
    """The wrapper with a kernel, neither the first nor the last, that aborts."""
    assert len(_KERNEL.findall(source)) == 1
    return _KERNEL.sub(r"\1 std::abort();", source)


def run(file: Path, args: list[object], code: int = 0) -> str:
    """What `rewriter run` prints to a pipe."""
    inputs = file.with_suffix(".pt")
    torch.save(args, inputs)
    # With this set, CPython takes the buffer away from C's standard output, too.
    options: dict[str, Any] = {"code": code, "cwd": file.parent, "less": "PYTHONUNBUFFERED"}
    return programs.rewriter("run", file, "--args", inputs, **options).stdout


@pytest.mark.exhaustive
def test_upstream_loses_its_names(tmp_path: Path) -> None:
    """The comparison that the README makes: PyTorch's printer at level 3, the same abort."""
    printer = {"aot_inductor.debug_intermediate_value_printer": "3"}
    graph = compile_case(MODELS["mlp"]("cpu"), cpp_wrapper=True, **printer).graphs[0]
    assert graph.source.count("before_launch: cpp_fused") == 2
    file = tmp_path / "output_code.py"

    file.write_text(graph.source)
    assert "before_launch: cpp_fused" in run(file, graph.args)

    file.write_text(deadly(graph.source))
    assert "before_launch" not in run(file, graph.args, code=1)
