"""Values of a GPU in C++ wrappers, beside those in Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import imports
from cpp_driver import (
    DTYPES,
    FOLDERS,
    HERE,
    MARKS,
    Both,
    Native,
    bits_of,
    options_of,
    row_of,
    shapes_of,
    tensor_of,
)
from fingerprints import fingerprint

pytestmark = MARKS


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_gpu_tensors_read_and_saved_as_in_python(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    runtimes = both("hash", "print", "save", values=True)
    for tensor in shapes_of(tensor_of(dtype, 6000)):
        # A copy of its own, with the same strides.
        size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = torch.zeros(max(size, 0) if tensor.numel() else 0, dtype=dtype)
        bits = flat.as_strided(tensor.shape, tensor.stride())
        if tensor.numel() and 0 not in tensor.stride():
            bits.copy_(tensor)
        there = flat.cuda().as_strided(tensor.shape, tensor.stride())
        runtimes.check_said(lambda runtime, there=there: runtime.after(12, there))
    runtimes.finish()
    runtimes.check_rows()
    for row in runtimes.rows()[1]:
        expected, found = (
            torch.load(dump / "rank0/run0" / row["file"], weights_only=True)
            for dump in runtimes.dumps
        )
        assert found.stride() == expected.stride()
        assert bits_of(found) == bits_of(expected)
        assert row["fingerprint"] == fingerprint(found)


@pytest.mark.gpu
def test_gpu_statistics_cost_no_memory_there_and_read_expanded_tensors_once(
    library: ctypes.CDLL, capfd: Any
) -> None:
    native = Native(library, options_of("print"), [row_of()])
    native.begin()
    whole = torch.arange(1 << 20, device="cuda", dtype=torch.float32).view(1024, 1024)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    native.before(12, whole.t())
    assert torch.cuda.max_memory_allocated() == before
    native.before(12, whole[:1].expand(1 << 20, 1024))
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    native.end()
    first, second = capfd.readouterr().out.splitlines()
    assert "f32[1024, 1024]  cuda:0  min 0 max 1.049e+06 mean 5.243e+05" in first
    assert "f32[1048576, 1024]  cuda:0  min 0 max 1023 mean 511.5 std 295.6" in second


@pytest.mark.gpu
def test_gpu_values_of_a_graph_need_a_call_before_the_capture(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    """The engine cannot be started within a capture, and the capture goes on."""
    program = (
        "import sys\nsys.path[:0] = sys.argv[1].split(':')\n"
        "from cpp_driver import *\n"
        "native = Native(load(Path(sys.argv[2])), options_of('print'), [row_of()])\n"
        "x = torch.ones(8, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    native.begin(); native.before(12, x); y = x + 1; native.end()\n"
        "graph.replay()\nprint(y.tolist())\n"
    )
    ran = subprocess.run(
        [imports.PYTHON, "-c", program, FOLDERS, str(library._name)],
        capture_output=True, text=True, timeout=120, cwd=HERE.parents[1], check=False,
    )  # fmt: skip
    assert "[2.0, 2.0" in ran.stdout, ran.stderr
    assert "are measured where the wrapper ran before it was captured" in ran.stderr
