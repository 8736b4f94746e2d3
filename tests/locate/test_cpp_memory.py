"""What a C++ wrapper says of its memory: where it comes from, who takes it over, who frees it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import rewriter
import shapes
from artifacts import CPP_FIXTURES, Fixture, plain
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.edit import Restored, strip
from rewriter.locate.types import Located
from sampling import one_in

FRAME = shapes.text("cpp/frame_aoti.cpp").replace("@KERNELS@", shapes.text("cpp/kernels.cpp"))
GIVEN = ["allocate buf0", "allocate buf1"]  # by the frame
WRITE = "cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));"
IN_PLACE = "cpp_fused_inplace_2((float*)({}.data_ptr()));"
_SIZES = "int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu"
_VIEW = "reinterpret_tensor_wrapper({}, 2, int_array_0, int_array_1, 0L)"


def made(name: str, by: str = "") -> str:
    by = by or f"aoti_torch_empty_strided(2, {_SIZES}, 0, "
    return (
        f"AtenTensorHandle {name}_handle;\n"
        f"AOTI_TORCH_ERROR_CODE_CHECK({by}&{name}_handle));\n"
        f"RAIIAtenTensorHandle {name}({name}_handle);"
    )


def view(name: str) -> str:
    return f"wrap_with_raii_handle_if_needed({_VIEW.format(name)})"


POOL = f"{made('pool1')}\n" + made(
    "buf5", f"aoti_torch__alloc_from_pool(pool1, 0, cached_torch_dtype_float32, 2, {_SIZES[:24]}, "
)
CASES = {
    # Must not match.
    "an input": ("arg0_1.reset();", []),
    "a view of an input": (f"auto buf5 = {view('arg0_1')};\nbuf5.reset();", []),
    "what takes over an input": ("auto buf5 = std::move(arg0_1);  // reuse\nbuf5.reset();", []),
    "a constant": (f"auto var_1 = {view('w')};\nvar_1.reset();", []),
    "a variable without a value": (
        "RAIIAtenTensorHandle buf5;\nbuf5.reset();\nbuf5 = std::move(buf0);",
        [],
    ),
    "what an operator fills": (
        made("buf5", "aoti_torch_new_uninitialized_tensor("),
        [],
    ),
    "pinned memory": (made("buf5", f"aoti_torch_empty_strided_pinned(2, {_SIZES}, 0, "), []),
    "a handle that nobody takes over": (
        "AtenTensorHandle tmp_handle;\n"
        f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, {_SIZES}, 0, &tmp_handle));",
        [],
    ),
    "an output": ("output_handles[1] = buf1.release();", []),
    "a view": (f"auto buf5 = {view('buf0')};", []),
    "nothing was there": ("auto buf5 = std::move(buf1);  // reuse", []),
    "a scalar": ("int64_t u0 = 4L;\nlist.reset();", []),
    # Must match.
    "allocated and given up": (f"{made('buf5')}\nbuf5.reset();", ["allocate buf5", "release buf5"]),
    "in a block": (
        "{\n    " + made("buf5").replace("\n", "\n    ") + "\n    buf5.reset();\n}",
        ["allocate buf5", "release buf5"],
    ),
    "a branch without braces": (
        f"{WRITE}\nif (s0 > 2L) buf0.reset();",
        ["release buf0, obstacle: it is a branch without braces"],
    ),
    "two statements on a line": (
        "int64_t s1 = 5L; buf0.reset();",
        ["release buf0, obstacle: another statement shares its line"],
    ),
    "parts of a pool": (
        POOL,
        ["allocate pool1, obstacle: its parts are guarded, each by itself", "allocate buf5"],
    ),
    "a view that is still there": (
        f"auto var_1 = {view('buf0')};\nbuf0.reset();\nvar_1.reset();",
        ["release buf0, held", "release var_1"],
    ),
    "a kernel made it": (
        made("buf5", "aoti_torch_cpu_cumsum(buf0, 0L, nullptr, ")
        + "\nbuf5.reset();\nbuf0.reset();",
        ["release buf5, held", "release buf0, held"],  # it may have kept, or returned, its input
    ),
    "a kernel of Inductor's read it": (f"{WRITE}\nbuf0.reset();", ["release buf0"]),
    "an operator with out= read it": (
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, buf1));\nbuf1.reset();",
        ["release buf1"],
    ),
    "taken over, and written anew": (
        f"{WRITE}\nauto buf5 = std::move(buf0);  // reuse\n{WRITE.replace('buf0', 'buf5')}",
        ["reuse buf5 of buf0, dead"],
    ),
    "taken over in place": (
        f"{WRITE}\nauto buf5 = std::move(buf0);  // reuse\n"
        f"{IN_PLACE.format('buf5')}\nbuf5.reset();",
        ["reuse buf5 of buf0", "release buf5"],
    ),
    "taken over as a view": (
        f"{WRITE}\nauto buf5 = {view('buf0')}; buf0.reset();  // reuse\n"
        f"{WRITE.replace('buf0', 'buf5')}\nbuf5.reset();",
        ["reuse buf5 of buf0, dead", "release buf5"],
    ),
    "taken over through a handle, as torch 2.6 does": (
        f"{WRITE}\nauto tmp_tensor_handle_1 = {_VIEW.format('buf0')};\n"
        "RAIIAtenTensorHandle tmp_tensor_handle_1_raii(tmp_tensor_handle_1);\n"
        "decltype(auto) buf5 = std::move(tmp_tensor_handle_1_raii); buf0.reset();  // reuse\n"
        f"{WRITE.replace('buf0', 'buf5')}\nbuf5.reset();",
        ["reuse buf5 of buf0, dead", "release buf5"],
    ),
}


def located(text: str) -> tuple[Artifact, Located]:
    path = Path("model.wrapper.cpp")
    artifact = Artifact(path, (Wrapper(path.name, text.encode(), "cpp", path),))
    return artifact, artifact.wrappers[0].located


def shown(found: Located) -> list[str]:
    return [
        f"{event.action} {event.buffer}{f' of {event.of}' * bool(event.of)}"
        f"{', dead' * event.is_dead}{', held' * event.is_held}"
        + f", obstacle: {event.insertion_point.obstacle}"
        * bool(event.insertion_point.obstacle)
        for event in found.memory
    ]


@pytest.mark.parametrize("case", CASES)
def test_memory(case: str) -> None:
    body, expected = CASES[case]
    last = IN_PLACE.format("arg2_1")  # a launch: without one an entry has no lines
    text = FRAME.replace("@BODY@", textwrap.indent(f"{body}\n{last}", "    ") + "\n")
    artifact, found = located(text)
    assert shown(found) == GIVEN + expected
    assert [event.index for event in found.memory] == list(range(len(found.memory)))
    probed = rewriter.instrument(artifact, rewriter.select("bounds,poison,stale")).source
    for event in found.memory:
        is_there = f"{event.action}d({event.index}, ".replace("ee", "e").encode() in probed
        assert is_there == (
            not event.insertion_point.obstacle and (event.is_dead or event.action != "reuse")
        )
    stripped = strip(probed)
    assert isinstance(stripped, Restored)
    assert stripped.source == text.encode()


def test_lines_stand_where_the_buffer_is_there() -> None:
    body = f"{made('buf5')}\n{WRITE}\nbuf5.reset();\nauto buf6 = std::move(buf0);  // reuse\n"
    body += WRITE.replace("buf0", "buf6")
    artifact, _ = located(FRAME.replace("@BODY@", textwrap.indent(body, "    ") + "\n"))
    probed = rewriter.instrument(artifact, rewriter.select("bounds,stale")).source.decode()
    lines = probed.splitlines()
    neighbours = {
        re.sub(r"  // rewriter.*", "", lines[place]).strip(): (
            lines[place - 1].strip(),
            lines[place + 1].strip(),
        )
        for place in range(len(lines))
        if re.match(r"    _rw\.(allocated|reused|released)", lines[place])
    }
    assert neighbours["_rw.allocated(2, buf5);"][0] == "RAIIAtenTensorHandle buf5(buf5_handle);"
    assert neighbours["_rw.released(3, buf5);"][1] == "buf5.reset();"
    assert neighbours["_rw.reused(4, buf6);"][0] == "auto buf6 = std::move(buf0);  // reuse"
    assert len(re.findall(r"^    _rw\.checked\(", probed, re.MULTILINE)) == 2


def test_an_output_in_memory_that_was_taken_over_twice_is_what_its_launch_writes() -> None:
    body = WRITE
    for old, new in (("buf0", "buf5"), ("buf5", "buf6")):
        body += f"\nauto {new} = {view(old)}; {old}.reset();  // reuse\n{IN_PLACE.format(new)}"
    text = FRAME.replace("@BODY@", textwrap.indent(body, "    ") + "\n")
    _, found = located(text.replace("buf0.release()", "buf6.release()"))
    (entry,) = found.entries
    assert (entry.outputs, entry.returned, entry.hazards) == (("buf0",), ("buf6",), ("",))
    assert [x.buffer for x in found.launches[-1].args] == ["buf0"]


@pytest.mark.parametrize(("copied", "output"), [("ema", "ema"), ("var_0", "ema"), ("mean", "")])
def test_of_a_weight_a_copy_is_returned_and_is_what_a_launch_wrote(
    copied: str, output: str
) -> None:
    """`mean` is not written, so no launch computes it."""
    weights = [f"auto& {x} = constants_->at({n});" for n, x in enumerate(("ema", "mean"))]
    body = "\n".join([*weights, WRITE, IN_PLACE.format("ema"), f"auto var_0 = {view('ema')};"])
    text = FRAME.replace("@BODY@", textwrap.indent(body, "    ") + "\n")
    release = "output_handles[0] = buf0.release();"
    assert release in text
    copy = f"{release}\n    aoti_torch_clone({copied}, &output_handles[1]);"
    (entry,) = located(text.replace(release, copy))[1].entries
    assert entry.outputs == ("buf0", output)
    assert entry.returned == ("buf0", copied * bool(output))


def test_bounds_alone_is_told_where_buffers_end() -> None:
    """The runtime keeps guarded memory until then; poison has nothing to keep."""
    body = (
        f"{WRITE}\nauto buf5 = std::move(buf0);  // reuse\n{IN_PLACE.format('buf5')}\nbuf5.reset();"
    )
    artifact, _ = located(FRAME.replace("@BODY@", textwrap.indent(body, "    ") + "\n"))
    probed = rewriter.instrument(artifact, rewriter.select("bounds")).source
    assert b"_rw.released(" in probed
    assert b"_rw.reused(" not in probed


_ALLOCATED = re.compile(rb"aoti_torch_empty_strided\(.*&(\w+)_handle\)\);")


@pytest.mark.properties
@pytest.mark.parametrize("fixture", one_in(4, CPP_FIXTURES))
def test_every_allocation_of_a_wrapper_is_known(fixture: Fixture) -> None:
    """By a search of the text; and each line says what its event does."""
    events = plain(fixture).only.located.memory
    made = [event.buffer for event in events if event.action == "allocate"]
    assert made == [name.decode() for name in _ALLOCATED.findall(fixture.data)]
    lines = fixture.data.splitlines()
    for event in events:
        assert not event.insertion_point.obstacle
        line = lines[event.line - 1]
        assert event.buffer.encode() in line
        assert {
            "allocate": b"RAIIAtenTensorHandle " in line,
            "reuse": b"reuse" in line and event.of.encode() in line,
            "release": b".reset();" in line and b"reuse" not in line,
        }[event.action]
