"""Which lines about memory leave their work to the next one."""

from __future__ import annotations

from itertools import pairwise

import pytest

import artifacts
from artifacts import CPP_FIXTURES, FIXTURES, Fixture
from rewriter.core.source import Source
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.dialects import cpp, python
from rewriter.instrumentation.lines import Lines
from rewriter.instrumentation.memory_waits import MemoryLine, waiting

PYTHON = {
    # Must not wait.
    "triton_0.run(buf0, 4, stream=stream0)": False,
    "extern_kernels.mm(buf0, buf1, out=buf2)": False,
    "buf2 = torch.ops.aten.relu.default(buf0)": False,
    "buf2 = reinterpret_tensor(buf0, (2,), (1,), 0).clone()": False,
    "buf2 = reinterpret_tensor(buf0.clone(), (2,), (1,), 0)": False,
    "buf2 = empty_strided_cuda((2,), (1,), torch.float32); buf2.zero_()": False,
    "buf2 = empty_strided_cuda((2,), (1,), torch.float32) + buf1": False,
    "buf2 = buf0 + buf1": False,
    "buf0[0] = buf1": False,
    "buf0 += buf1": False,
    "u0 = buf0.item()": False,
    "if buf0 is None:": False,
    "    del buf0": False,
    "return (buf0, )": False,
    "with torch.cuda._DeviceGuard(0):": False,
    "del buf0[0]": False,
    "buf2 = buf0[s0]": False,
    # Waits.
    "": True,
    "# Topologically Sorted Source Nodes: [relu(x)]": True,
    "del buf0": True,
    "del arg0_1, buf0": True,
    "buf2 = buf0": True,
    "buf2 = buf1; del buf1  # reuse": True,
    "buf2 = buf1[0]": True,
    "buf2 = empty_strided_cuda((s0, 3), (3, 1), torch.float32)": True,
    "buf2 = reinterpret_tensor(buf1, (2, 2*s0), (2, 1), 0); del buf1  # reuse": True,
    "assert_size_stride(buf2, (2, 4), (4, 1), 'torch.ops.aten.mm.default')": True,
    "stream0 = get_raw_stream(0)": True,
}
CPP = {
    # Must not wait.
    "call_triton_0(buf0, 4L, stream, kernels, this->cubin_dir_);": False,
    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf2, buf0, buf1));": False,
    "cpp_fused_0((const float*)(buf0.data_ptr()), (float*)(buf1.data_ptr()));": False,
    "if (true) {": False,
    "}": False,
    "for (int i = 0; i < 2; ++i)": False,
    "return;": False,
    "#ifdef SOMETHING": False,
    "int64_t u0 = buf0.item();": False,
    # Waits.
    "": True,
    "// Source Nodes: [relu(x)]": True,
    "buf0.reset();": True,
    "static constexpr int64_t int_array_0[] = {32L, 64L};": True,
    "AtenTensorHandle buf1_handle;": True,
    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1,"
    " cached_torch_dtype_float32, cached_torch_device_type_cuda, 0, &buf1_handle));": True,
    "RAIIAtenTensorHandle buf1(buf1_handle);": True,
    "auto buf2 = std::move(buf1);  // reuse": True,
    "auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf1, 2, int_array_0,"
    " int_array_1, 0L)); buf1.reset();  // reuse": True,
}


@pytest.mark.parametrize(("line", "waits"), PYTHON.items())
def test_lines_of_python(line: str, waits: bool) -> None:
    lines = f"        del buf8\n        {line}\n        del buf9\n".encode()
    assert python.Python(standalone=False).is_bookkeeping(lines, b" " * 8) is waits


def test_what_has_another_indent_runs_at_another_time() -> None:
    for indent in (4, 12):
        lines = b"        del buf8\n" + b" " * indent + b"del buf0\n        del buf9\n"
        assert not python.Python(standalone=False).is_bookkeeping(lines, b" " * 8)


@pytest.mark.parametrize(("line", "waits"), CPP.items())
def test_lines_of_cpp(line: str, waits: bool) -> None:
    lines = f"    buf8.reset();\n    {line}\n    buf9.reset();\n".encode()
    dialect = cpp.Cpp.of(Source("w.cpp", b""), standalone=True)
    assert dialect.is_bookkeeping(lines, b"    ") is waits


def memory_lines(fixture: Fixture) -> tuple[tuple[MemoryLine, ...], frozenset[MemoryLine]]:
    """All lines about memory that a recorded wrapper can get, and those that wait."""
    wrapper = artifacts.plain(fixture).only
    dialect = dialect_of(wrapper)
    lines = Lines(wrapper.plain, dialect, is_dormant=False)
    for event in wrapper.located.memory:
        if not event.insertion_point.obstacle:
            lines.memory(event)
    for launch in wrapper.located.launches:
        if not (launch.insertion_point.obstacle or launch.is_last):
            lines.checked(launch)
    all_lines = lines.of_memory()
    return all_lines, waiting(wrapper.plain.data, all_lines, dialect)


@pytest.mark.properties
@pytest.mark.parametrize("fixture", FIXTURES + CPP_FIXTURES, ids=str)
def test_nothing_runs_before_the_line_that_is_waited_for(fixture: Fixture) -> None:
    located = artifacts.plain(fixture).only.located
    lines, waits = memory_lines(fixture)
    starts = [launch.insertion_point.start for launch in located.launches]
    starts += [use.start for use in located.other_uses]
    starts += [one.start for one in located.unrecognised]
    for line, following in pairwise(lines):
        if line in waits:
            assert not [x for x in starts if line.offset <= x < following.offset]


def test_most_lines_wait_in_a_model() -> None:
    for name in ("cuda-torch2.11/gpt", "cuda-torch2.11/gpt aoti"):
        lines, waits = memory_lines(artifacts.get(name))
        assert len(lines) - len(waits) <= 36 < len(lines) // 2
