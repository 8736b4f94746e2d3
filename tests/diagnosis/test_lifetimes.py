"""What the text of a wrapper says of its memory: real wrappers, with a line moved or taken out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get, plain
from changed_wrappers import Change, above, instead, line_with, without
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Wrapper
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.wrapper_text import examine_kernels, examine_lifetimes, reads_first
from rewriter.dump.names import SourceLine
from sampling import one_in

PYTHON, CPP = "cpu-torch2.13/transformer", "cpu-torch2.13/transformer cpp_wrapper"
CUSTOM = "cpu-torch2.13/customop"


def _of_text(tmp_path: Path, text: str, name: str = "output_code.py") -> Wrapper:
    (tmp_path / name).write_text(text)
    return open_artifact(tmp_path / name).only


def _findings(tmp_path: Path, name: str, change: Change) -> tuple[Finding, ...]:
    path = get(name).path
    wrapper = _of_text(tmp_path, change(path.read_text()), path.name)
    lines = {0: (SourceLine("model.py", 3),)}
    lifetimes = examine_lifetimes(wrapper, lines=lines)
    return lifetimes.findings + examine_kernels(wrapper, reads=lifetimes.findings).findings


def _moved(part: str, other: str) -> Change:
    """The line with `part`, moved behind that with `other`."""

    def change(text: str) -> str:
        line, last = line_with(text, part), line_with(text, other)
        return text.replace(line, "", 1).replace(last, last + line, 1)

    return change


_GELU, _CPP_GELU = "cpp_fused_gelu_view_2(buf15", "    cpp_fused_gelu_view_2((const"
_MADE = "buf17 = empty_strided_cpu((12, 16), (16, 1), torch.float32)"
CHANGES: dict[str, tuple[str, Change, str, int, str]] = {
    "missing-extern": (
        PYTHON, without("extern_kernels.addmm(primals_5"), "unwritten", 1,
        "reads buf5, which nothing has written",
    ),
    "missing-kernel": (
        PYTHON, without(f"    {_GELU}"), "unwritten", 6, "reads buf16, which nothing has written",
    ),
    "missing-in-place": (
        PYTHON, without("    cpp_fused_add_view_3(buf18"), "missing", 7,
        "cpp_fused_add_view_3 is defined (line",
    ),
    "reordered": (
        PYTHON, _moved(f"    {_GELU}", "extern_kernels.addmm(primals_13"), "order", 6,
        "#7 cpp_fused_gelu_view_2",
    ),
    "freed": (
        PYTHON, above(_GELU, "del buf15"), "freed", 6, "reads buf15, which is deleted before it",
    ),
    "stale": (
        PYTHON, instead(_MADE, "buf17 = buf9"), "stale", 8,
        "reads buf9 after another buffer took its memory over",
    ),
    "a copy is written": (
        PYTHON, instead(f"{_GELU}, buf16)", f"{_GELU}, buf16.clone())"), "unwritten", 6,
        "writes to a copy, buf16.clone(): nothing has written buf16, which launch #7",
    ),
    "a copy of a part is written": (
        PYTHON, instead("buf4)\n", "buf4[:3].clone())\n"), "unwritten", 0,
        "writes to a copy, buf4[:3].clone(): nothing has written buf4, which launch #1",
    ),
    "cpp-missing-extern": (
        CPP, without("aoti_torch_cpu_addmm_out(buf5"), "unwritten", 1,
        "reads buf5, which nothing has written",
    ),
    "cpp-missing-kernel": (CPP, without(_CPP_GELU), "unwritten", 6, "which nothing has written"),
    "cpp-freed": (
        CPP, above(_CPP_GELU, "buf15.reset();"), "freed", 6, "which is deleted before it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "kind", "launch", "words"), CHANGES.values(), ids=CHANGES
)
def test_memory_that_is_read_too_early_or_too_late(
    name: str, change: Change, kind: str, launch: int, words: str, tmp_path: Path
) -> None:
    found = [one for one in _findings(tmp_path, name, change) if one.kind == kind]
    assert [one.launch for one in found] == [launch]
    assert words in found[0].headline
    assert found[0].headline.endswith("shown by the text of the wrapper")


@pytest.mark.parametrize(
    ("kernel", "is_finding"),
    [
        ("torch.ops.aten.cumsum.default", True),
        ("torch.ops.aten.bernoulli.default", True),  # of probabilities
        ("torch.ops.aten.normal.Tensor_float", True),  # of means
        ("torch.ops.corp.normal_functional.default", True),
        ("torch.ops.aten.normal_functional.default", False),
        ("torch.ops.aten.bernoulli.p", False),
        ("torch.ops.aten.exponential.default", False),
        ("torch.ops.aten.random.to", False),
        ("torch.ops.aten.rand_like.default", False),
        ("torch.ops.aten.new_zeros.default", False),
    ],
)
def test_who_takes_a_shape_alone_reads_nothing(
    kernel: str, is_finding: bool, tmp_path: Path
) -> None:
    """As `torch.empty_like(x).normal_()` is compiled."""
    fresh = "fresh = empty_strided_cpu((4, 8), (8, 1), torch.float32)"
    lines = f"{fresh}\n        drawn = {kernel}(fresh)"
    found = _findings(tmp_path, CUSTOM, above("[aten.relu, rewriter_demo.scale]", lines))
    assert [x.kind for x in found if "fresh" in x.headline] == ["unwritten"] * is_finding


@pytest.mark.parametrize("name", [PYTHON, CPP])
def test_lines_are_those_of_the_wrapper_without_probes(name: str, tmp_path: Path) -> None:
    """A dump has a copy of the wrapper with its probes; users have the one without."""
    fixture, path = get(name), tmp_path / "output_code.py"
    text = fixture.path.read_text()
    gone = line_with(text, "addmm_out(buf9" if "cpp_wrapper" in name else "out=buf9")
    path.write_text(text.replace(gone, "", 1))
    probed = tmp_path / "probed.py"
    probed.write_bytes(rewriter.instrument(path, rewriter.select("hash")).source)
    plain_findings, findings = (
        examine_lifetimes(open_artifact(one).only).findings for one in (path, probed)
    )
    assert [(x.line, x.text) for x in findings] == [(x.line, x.text) for x in plain_findings]
    assert findings


@pytest.mark.parametrize(
    ("copy", "found"),
    [
        ("buf5.clone()", "writes to a copy, buf5.clone(): nothing has written buf5, which the"),
        ("torch.cat([buf5])", "returns buf5, and nothing has written it"),
        ("buf5.contiguous()", ""),  # buf5 itself, as it is contiguous
        ("buf5", ""),
    ],
)
def test_a_launch_that_writes_to_a_copy_leaves_what_is_returned_unwritten(
    copy: str, found: str, tmp_path: Path
) -> None:
    text = f"""# AOT ID: ['0_backward']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_sum_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{{}}
''')


def call(args):
    arg0_1, = args
    buf5 = empty_strided_cpu((1, 24), (24, 1), torch.float32)
    cpp_fused_sum_0(arg0_1.clone(), {copy})
    return (buf5, )
"""
    taken = text.replace("empty_strided_cpu((1, 24), (24, 1), torch.float32)", "arg9_1  # reuse")
    for written in (text, taken):
        findings = examine_lifetimes(_of_text(tmp_path, written)).findings
        assert [one.kind for one in findings] == ["unwritten"] * bool(found)
        assert all(found in one.headline for one in findings)


@pytest.mark.parametrize(("size", "is_finding"), [("4, 8", True), ("4, 0", False), ("0,", False)])
def test_what_has_no_elements_may_be_returned_unwritten(
    size: str, is_finding: bool, tmp_path: Path
) -> None:
    def change(text: str) -> str:
        text = re.sub(r"return \((?=buf\d+,)", "return (fresh, ", text)
        return above("[aten.relu, rewriter_demo.scale]", made)(text)

    made = f"fresh = empty_strided_cpu(({size}), (8, 1), torch.float32)"
    found = _findings(tmp_path, CUSTOM, change)
    assert [x.kind for x in found if "returns fresh" in x.headline] == ["unwritten"] * is_finding


@pytest.mark.parametrize(("size", "is_finding"), [("4L, 8L", True), ("0L, 8L", False)])
def test_cpp_may_return_unwritten_what_has_no_elements(
    size: str, is_finding: bool, tmp_path: Path
) -> None:
    def change(text: str) -> str:
        """Another buffer in the place of the first output."""
        (old,) = re.findall(r"output_handles\[0\] = (\w+)\.release", text)
        body = text.index("void inductor_entry_impl")
        declared = f"static constexpr int64_t none[] = {{{size}}};\n"
        text = text[:body] + declared + text[body:]
        out = line_with(text, "output_handles[0] = ")
        made = (
            "    AtenTensorHandle fresh_handle;\n"
            "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, none, none, "
            "cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &fresh_handle));\n"
            "    RAIIAtenTensorHandle fresh(fresh_handle);\n"
        )
        return text.replace(out, made + out.replace(old, "fresh"))

    found = _findings(tmp_path, CPP, change)
    assert [x.kind for x in found if "returns fresh" in x.headline] == ["unwritten"] * is_finding


@pytest.mark.parametrize(
    "made", ["empty_strided_cpu((4, 8), (8, 1), torch.float32)", "buf9; del buf9  # reuse"]
)
@pytest.mark.parametrize("operator", ["aten.empty.memory_format([4, 8])", "aten.cumsum.default(x)"])
def test_a_model_may_return_what_it_does_not_write(
    operator: str, made: str, tmp_path: Path
) -> None:
    """As `return x.new_empty(4, 8)` is compiled, in new memory or in that of a buffer that is not
    read again: no launch is missing. vLLM's pieces return so what an attention writes to."""
    text = get(CUSTOM).path.read_text()
    count = len(re.findall(r"\w+, ", re.findall(r"return \((buf\d+, .*)\)", text)[-1]))
    text = re.sub(r"return \((?=buf\d+,)", "return (fresh, ", text)
    if "reuse" in made:
        text = text.replace("buf11 = buf9; del buf9  # reuse", "buf11 = buf9")
        text = above("return (fresh", f"fresh = {made}")(text)
    else:
        text = above("[aten.relu, rewriter_demo.scale]", f"fresh = {made}")(text)
    graph = (
        'def forward(self, x: "f32[4, 8]"):\n'
        f'    a: "f32[4, 8]" = torch.ops.{operator}\n'
        '    b: "f32[8, 4]" = torch.ops.aten.permute.default(a, [1, 0])\n'
        f"    return (b, {'x, ' * count})\n"
    )
    examined = examine_lifetimes(_of_text(tmp_path, text), graph=graph)
    found = [one for one in examined.findings if "returns fresh" in one.headline]
    assert len(found) == ("cumsum" in operator)


def test_a_stale_buffer_may_be_returned(tmp_path: Path) -> None:
    change = instead("buf3 = empty_strided_cpu((4, 8), (8, 1), torch.float32)", "buf3 = buf0")
    (stale,) = _findings(tmp_path, CUSTOM, change)
    assert (stale.kind, stale.launch, stale.lasting) == ("stale", 2, True)
    (line,) = (x for x in stale.text if "buf3 = buf0" in x)
    assert re.fullmatch(r"line \d+: buf3 = buf0", line)
    assert "the call returns buf0" in stale.text
    # What only the launch that reads it overwrites, element by element, is no one else's matter.
    (alone,) = _findings(
        tmp_path, CUSTOM, lambda x: change(x).replace("(buf11, buf0, )", "(buf11, )")
    )
    assert (alone.kind, alone.launch, alone.lasting) == ("stale", 2, False)


def test_all_names_of_memory_are_outdated_where_it_is_reused(tmp_path: Path) -> None:
    """Another name for a buffer, which is given to a third one while that name is still read."""
    text = get(CUSTOM).path.read_text()
    assert "buf11 = buf9; del buf9  # reuse" in text

    def change(text: str) -> str:
        text = text.replace("buf11 = buf9;", "buf99 = buf9\n        buf11 = buf9;", 1)
        return text.replace("(buf11, buf0, )", "(buf11, buf0, buf99, )", 1)

    (found,) = _findings(tmp_path, CUSTOM, change)
    assert (found.kind, found.launch) == ("stale", None)
    assert "returns buf99, and another buffer took its memory over" in found.what


def test_a_stale_buffer_may_be_written_by_an_earlier_launch(tmp_path: Path) -> None:
    change = instead("buf17 = empty_strided_cpu((12, 16), (16, 1), torch.float32)", "buf17 = buf9")
    (stale,) = _findings(
        tmp_path, PYTHON, lambda x: re.sub(r"return \(.*buf9.*\)", "return ()", change(x))
    )
    assert (stale.kind, stale.launch, stale.lasting) == ("stale", 8, True)
    assert not any("returns" in line for line in stale.text)


def test_what_is_launched_is_said_of_one_wrapper() -> None:
    """Beside it, there may be a wrapper in which a launch is missing."""
    wrapper = plain(FIXTURES[0]).only
    assert f"in the text of {wrapper.path.name[:14]}, " in examine_kernels(wrapper).ruled_out


@pytest.mark.properties
@pytest.mark.parametrize("fixture", one_in(2, [*FIXTURES, *CPP_FIXTURES]))
def test_what_inductor_wrote_has_no_findings(fixture: Fixture) -> None:
    wrapper = plain(fixture).only
    empty = {one.buffer for launch in wrapper.launches for one in launch.args}
    # Nothing writes a tensor without elements, which a record says.
    is_empty = fixture.model == "empty"
    found = examine_lifetimes(wrapper, empty=empty | {"buf5"} if is_empty else ())
    assert [one.headline for one in found.findings] == []
    assert examine_kernels(wrapper).findings == ()


@pytest.mark.properties
@pytest.mark.parametrize("fixture", [x for x in FIXTURES if "2.13" in x.folder], ids=str)
def test_each_launch_that_is_taken_out_is_missed(fixture: Fixture, tmp_path: Path) -> None:
    wrapper = plain(fixture).only
    data = wrapper.plain.data
    for launch in wrapper.launches:
        point = launch.insertion_point
        if launch.kind in ("cpp", "extern_out") and not (launch.repeats or point.obstacle):
            path = tmp_path / fixture.path.name
            path.write_bytes(data[: point.start] + data[point.end :])
            changed = open_artifact(path).only
            found = examine_lifetimes(changed).findings + examine_kernels(changed).findings
            assert found, launch


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];", True),
        ("auto tmp0 = at::vec::Vectorized<float>::loadu(in_out_ptr0 + x0);", True),
        ("in_out_ptr0[static_cast<int64_t>(x0)] = tmp2;\nauto tmp = in_out_ptr0[0];", False),
        ("tmp_acc0_vec.store(in_out_ptr0 + x0);\nauto tmp = in_out_ptr0[0];", False),
        ("auto in_ptr7 = in_out_ptr0;\nauto tmp0 = in_ptr7[x0];", True),
        ("auto out_ptr7 = in_out_ptr0;\nout_ptr7[x0] = tmp3;\nauto x = in_out_ptr0[0];", False),
        ("atomic_add(&in_out_ptr0[x0], tmp3);", True),
        ("", False),
    ],
)
def test_whether_a_kernel_reads_first_is_read_in_its_text(body: str, expected: bool) -> None:
    text = f'extern "C"  void  kernel(float* in_out_ptr0,\n const float* in_ptr1)\n{{\n{body}\n}}\n'
    assert reads_first(text, 0) is expected


def test_an_atomic_addition_of_triton_reads_first() -> None:
    text = (
        "@pointwise(triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32'}})\n"
        "@triton.jit\ndef k(in_ptr0, out_ptr0, XBLOCK : tl.constexpr):\n    x = 1\n"
    )
    assert reads_first(f"{text}    tl.atomic_add(out_ptr0 + (x), tmp2, xmask)\n", 1)
    assert not reads_first(f"{text}    tl.store(out_ptr0 + (x), tmp2, xmask)\n", 1)


def test_sizes_that_are_equal_have_no_memory_to_take_over(tmp_path: Path) -> None:
    """As Inductor writes it where two dynamic sizes turn out to be one."""
    text = """\
from torch._inductor.select_algorithm import extern_kernels
def call(args):
    arg0_1, arg1_1, arg2_1 = args
    s23 = arg0_1
    s97 = s23
    buf0 = empty_strided_cpu((s97, ), (1, ), torch.float32)
    extern_kernels.mm(arg1_1, arg2_1, out=buf0)
    return (buf0, s97, s23, )
"""
    assert examine_lifetimes(_of_text(tmp_path, text)).findings == ()


def test_a_concatenation_in_reused_memory_is_written_through_its_parts(tmp_path: Path) -> None:
    """As Inductor writes it where a concatenation takes over the memory of another buffer."""
    text = """\
from torch._inductor.select_algorithm import extern_kernels
def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    buf3 = buf0; del buf0  # reuse
    buf1 = reinterpret_tensor(buf3, (2, 4), (4, 1), 0)  # alias
    buf2 = reinterpret_tensor(buf3, (2, 4), (4, 1), 8)  # alias
    extern_kernels.mm(arg0_1, arg1_1, out=buf1)
    extern_kernels.mm(arg0_1, arg1_1, out=buf2)
    buf4 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(buf3, arg1_1, out=buf4)
    return (buf4, )
"""
    assert examine_lifetimes(_of_text(tmp_path, text)).findings == ()
    less = _of_text(tmp_path, re.sub(r".*out=buf[12]\)\n", "", text))
    (found,) = examine_lifetimes(less).findings
    assert (found.kind, found.launch) == ("unwritten", 1)


@pytest.mark.parametrize(
    ("parameter", "kind"), [("in_out_ptr0", "unwritten"), ("out_ptr0", "order")]
)
def test_a_launch_that_updates_a_buffer_is_not_the_one_that_is_missing(
    parameter: str, kind: str, tmp_path: Path
) -> None:
    """Where the launch that computes a buffer is gone, a later one may still add to it."""
    load = "auto tmp0 = in_out_ptr0[x0];\n" if parameter == "in_out_ptr0" else ""
    text = f"""\
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
async_compile = AsyncCompile()
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r'''
extern "C"  void  kernel(float* {parameter}, const float* in_ptr0)
{{
    {load}    {parameter}[x0] = tmp1;
}}
''')
def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    buf1 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(buf0, arg1_1, out=buf1)
    cpp_fused_add_0(buf0, arg0_1)
    return (buf0, buf1, )
"""
    found = examine_lifetimes(_of_text(tmp_path, text)).findings
    assert (found[0].kind, found[0].launch) == (kind, 0)


_LOOP = """
def while_loop_body_graph_0_0(args):
    while_loop_body_graph_0_0_arg0_1, while_loop_body_graph_0_0_arg1_1 = args
    args.clear()
    cpp_fused_copy_0(while_loop_body_graph_0_0_arg0_1, while_loop_body_graph_0_0_arg1_1)
    return (while_loop_body_graph_0_0_arg0_1, while_loop_body_graph_0_0_arg1_1, )


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((6, 4), (4, 1), torch.float32)
    buf3 = [None] * 2
    buf3[0] = arg0_1
    buf3[1] = buf0
    while should_loop:
        while_loop_body_graph_0_0_args = [buf3[0], buf3[1]]
        (buf3[0], buf3[1]) = while_loop_body_graph_0_0(while_loop_body_graph_0_0_args)
    return (buf0, )
"""


def test_what_a_loop_carries_may_be_written_in_its_body(tmp_path: Path) -> None:
    """The result of `scan`, whose body fills it in place."""
    assert examine_lifetimes(_of_text(tmp_path, _LOOP)).findings == ()
    alone = _of_text(tmp_path, _LOOP.replace("    buf3[1] = buf0\n", ""))
    (found,) = examine_lifetimes(alone).findings
    assert "returns buf0, and nothing has written it" in found.what
