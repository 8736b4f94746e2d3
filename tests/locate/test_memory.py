"""What a wrapper says of its memory: where it comes from, who takes it over, who gives it up."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from unittest.mock import ANY

import pytest

import rewriter
from artifacts import get
from rewriter.core.edit import Restored, strip

_HEAD = """\
from torch._inductor.async_compile import AsyncCompile
import torch
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }
''')
cpp_fused_1 = async_compile.cpp_pybinding(['float*'], '''
extern "C" void kernel(float* in_out_ptr0) { in_out_ptr0[0] = in_out_ptr0[0] + 1; }
''')
def call(args):
    arg0_1, = args
    args.clear()
"""
ALLOCATE = "buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)"
WRITE = "cpp_fused_0(arg0_1, buf0)"
CASES = {
    # Must not match.
    "an input that is deleted": ("del arg0_1", []),
    "a view without reuse": (
        f"{ALLOCATE}\n{WRITE}\nbuf1 = reinterpret_tensor(buf0, (2, ), (1, ), 0)",
        ["allocate buf0"],
    ),
    "a number": ("s0 = 4\ndel s0", []),
    "the memory of an input": ("buf0 = arg0_1; del arg0_1  # reuse", []),
    "taken over before anything was written": (
        f"{ALLOCATE}\nbuf1 = buf0; del buf0  # reuse\ncpp_fused_0(arg0_1, buf1)",
        ["allocate buf0"],
    ),
    # Must match.
    "allocated and given up": (f"{ALLOCATE}\ndel buf0", ["allocate buf0", "release buf0"]),
    "the result of a call": (
        "buf0 = torch.ops.aten.sort.default(arg0_1)\ndel buf0",
        ["release buf0"],
    ),
    "several at once": (
        f"{ALLOCATE}\nbuf1 = empty_strided_cpu((4, ), (1, ), torch.float32)\ndel buf0, buf1",
        ["allocate buf0", "allocate buf1", "release buf0", "release buf1"],
    ),
    "taken over, and written anew": (
        f"{ALLOCATE}\n{WRITE}\nbuf1 = buf0; del buf0  # reuse\ncpp_fused_0(arg0_1, buf1)",
        ["allocate buf0", "reuse buf1 of buf0, dead"],
    ),
    "taken over as a view, and written anew": (
        f"{ALLOCATE}\n{WRITE}\n"
        "buf1 = reinterpret_tensor(buf0, (2, 2), (2, 1), 0); del buf0  # reuse"
        "\ncpp_fused_0(arg0_1, buf1)\ndel buf1",
        ["allocate buf0", "reuse buf1 of buf0, dead", "release buf1"],
    ),
    "taken over in place": (
        f"{ALLOCATE}\n{WRITE}\nbuf1 = buf0; del buf0  # reuse\ncpp_fused_1(buf1)",
        ["allocate buf0", "reuse buf1 of buf0"],
    ),
    "taken over twice": (
        f"{ALLOCATE}\n{WRITE}\nbuf1 = buf0; del buf0  # reuse\nbuf2 = buf1; del buf1  # reuse"
        "\ncpp_fused_0(arg0_1, buf2)",
        ["allocate buf0", "reuse buf1 of buf0", "reuse buf2 of buf1, dead"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_memory(case: str, tmp_path: Path) -> None:
    body, expected = CASES[case]
    path = tmp_path / "output_code.py"
    path.write_text(_HEAD + indent(dedent(body), "    ") + "\n    return (None, )\n")
    events = rewriter.open(path).wrappers[0].located.memory
    found = [
        f"{x.action} {x.buffer}" + f" of {x.of}" * bool(x.of) + ", dead" * x.is_dead for x in events
    ]
    assert found == expected
    assert [x.index for x in events] == list(range(len(events)))


def test_lines_stand_where_the_memory_is(tmp_path: Path) -> None:
    """Behind an allocation and a reuse, in front of a release, and of a launch the check last."""
    path = tmp_path / "output_code.py"
    body = (
        f"{ALLOCATE}\n{WRITE}\nbuf1 = buf0; del buf0  # reuse\ncpp_fused_0(arg0_1, buf1)\ndel buf1"
    )
    path.write_text(_HEAD + indent(body, "    ") + "\n    return (None, )\n")
    result = rewriter.instrument(path, rewriter.select("bounds,hash,poison,stale"))
    lines = [
        line.strip().partition("  #")[0]
        for line in result.source.decode().partition("args.clear()\n")[2].splitlines()
    ]
    assert lines[:-1] == [
        ALLOCATE,
        "buf0 = _rw.allocated(0, buf0)",
        WRITE,
        "_rw.after(0, buf0)",
        "_rw.checked(0)",
        "buf1 = buf0; del buf0",
        "_rw.reused(1, buf1)",
        "cpp_fused_0(arg0_1, buf1)",
        "_rw.after(1, buf1)",
        "_rw.checked(1)",
        "_rw.released(2, buf1)",
        "del buf1",
    ]
    assert strip(result.source) == Restored(path.read_bytes(), ANY, True)


def test_none_that_is_returned_is_no_buffer(tmp_path: Path) -> None:
    """As the gradient of an input that needs none."""
    path = tmp_path / "output_code.py"
    path.write_text(_HEAD + indent(f"{ALLOCATE}\n{WRITE}\nreturn (None, buf0, )\n", "    "))
    (entry,) = rewriter.open(path).only.located.entries
    assert (entry.outputs, entry.returned, entry.hazards) == (("", "buf0"),) * 2 + (("", ""),)


def test_a_library_call_reads_what_nobody_wrote(tmp_path: Path) -> None:
    """It returns its result, and does not write the memory of a launch that is missing."""
    text = get("cpu-torch2.13/conv").data
    (line,) = (one for one in text.splitlines(True) if b"cpp_fused_convolution_0(arg2_1," in one)
    (path := tmp_path / "output_code.py").write_bytes(text.replace(line, b""))
    launches = rewriter.open(path).launches
    (called,) = (one for one in launches if one.kernel == "extern_kernels.convolution")
    roles = {one.name: (one.role, one.hazard) for one in called.args if one.type == "tensor"}
    assert roles == {
        "buf0": ("in", "unwritten"),
        "buf1": ("in", "unwritten"),
        "arg1_1": ("in", ""),
        "buf2": ("out", ""),
    }
