"""What a wrapper says of its memory: where it comes from, who takes it over, who gives it up."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pytest

import rewriter
from artifacts import get
from bodies import VIEW, wrapper
from rewriter.core.edit import Restored, strip

WRITTEN = "buf0 = new | write(arg0_1, buf0)"
CASES = {
    # Must not match.
    "an input that is deleted": ("del arg0_1", []),
    "a view without reuse": (f"{WRITTEN} | buf1 = {VIEW.format('buf0')}", ["allocate buf0"]),
    "a number": ("s0 = 4 | del s0", []),
    "the memory of an input": ("buf0 = took arg0_1", []),
    "taken over before anything was written": (
        "buf0 = new | buf1 = took buf0 | write(arg0_1, buf1)",
        ["allocate buf0"],
    ),
    # Must match.
    "allocated and given up": ("buf0 = new | del buf0", ["allocate buf0", "release buf0"]),
    "the result of a call": (
        "buf0 = torch.ops.aten.sort.default(arg0_1) | del buf0",
        ["release buf0"],
    ),
    "several at once": (
        "buf0, buf1 = new | del buf0, buf1",
        ["allocate buf0", "allocate buf1", "release buf0", "release buf1"],
    ),
    "taken over, and written anew": (
        f"{WRITTEN} | buf1 = took buf0 | write(arg0_1, buf1)",
        ["allocate buf0", "reuse buf1 of buf0, dead"],
    ),
    "taken over as a view, and written anew": (
        f"{WRITTEN} | buf1 = reshaped buf0 | write(arg0_1, buf1) | del buf1",
        ["allocate buf0", "reuse buf1 of buf0, dead", "release buf1"],
    ),
    "taken over in place": (
        f"{WRITTEN} | buf1 = took buf0 | update(buf1)",
        ["allocate buf0", "reuse buf1 of buf0"],
    ),
    "taken over twice": (
        f"{WRITTEN} | buf1 = took buf0 | buf2 = took buf1 | write(arg0_1, buf2)",
        ["allocate buf0", "reuse buf1 of buf0", "reuse buf2 of buf1, dead"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_memory(case: str, tmp_path: Path) -> None:
    body, expected = CASES[case]
    events = rewriter.open(wrapper(tmp_path, body, "(None, )")).only.located.memory
    found = [
        f"{x.action} {x.buffer}" + f" of {x.of}" * bool(x.of) + ", dead" * x.is_dead for x in events
    ]
    assert found == expected
    assert [x.index for x in events] == list(range(len(events)))


def test_lines_stand_where_the_memory_is(tmp_path: Path) -> None:
    """Behind an allocation and a reuse, in front of a release, and of a launch the check last."""
    body = f"{WRITTEN} | buf1 = took buf0 | write(arg0_1, buf1) | del buf1"
    path = wrapper(tmp_path, body, "(None, )")
    result = rewriter.instrument(path, rewriter.select("bounds,hash,poison,stale"))
    lines = [
        line.strip().partition("  #")[0]
        for line in result.source.decode().partition("args.clear()\n")[2].splitlines()
    ]
    assert lines[:-1] == [
        "buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)",
        "buf0 = _rw.allocated(0, buf0)",
        "write(arg0_1, buf0)",
        "_rw.after(0, buf0)",
        "_rw.checked(0)",
        "buf1 = buf0; del buf0",
        "_rw.reused(1, buf1)",
        "write(arg0_1, buf1)",
        "_rw.after(1, buf1)",
        "_rw.checked(1)",
        "_rw.released(2, buf1)",
        "del buf1",
    ]
    assert strip(result.source) == Restored(path.read_bytes(), ANY, True)


def test_none_that_is_returned_is_no_buffer(tmp_path: Path) -> None:
    """As the gradient of an input that needs none."""
    (entry,) = rewriter.open(wrapper(tmp_path, WRITTEN, "(None, buf0, )")).only.located.entries
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
