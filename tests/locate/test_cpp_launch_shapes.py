# ruff: noqa: E501
"""Every form that a launch takes in a C++ wrapper, and what looks like one and is none.

The forms are rows of the tables in `shapes/cpp`. A body is what Inductor writes into an entry, with
the lines that our probes add to it: `@before` and `@after` name the values that are read there. A row
without them is not probed. What the locator finds is written as `shown` does it: scope, kind, kernel,
then `role [type] name [= expression] [@ buffer] [later expression]` per argument.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

import rewriter
import shapes
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.types import Json
from rewriter.locate.types import Argument, Launch

# Wrappers without a body. What every body can use: inputs, a constant, a size, two buffers that
# hold nothing.
FRAMES = {
    name: shapes.text(f"cpp/frame_{name}{suffix}").replace(
        "@KERNELS@", shapes.text("cpp/kernels.cpp")
    )
    for name, suffix in (("aoti", ".cpp"), ("arrayref", ".cpp"), ("jit", ".py.txt"))
}
# What `proxy_executor` calls by number: the nodes of a `.wrapper.json`.
OPERATORS: tuple[Json, ...] = tuple(json.loads(shapes.text("cpp/operators.json")))

_INJECTED = re.compile(
    r"^(?P<indent> *)_rw\.(?P<phase>before|after)\(\d+(?:, (?P<values>.*))?\);  // rewriter:\w+$"
)
# A view is written as what makes it; the rows have it as the launch does.
_VIEW = re.compile(r"_rw\.view\((\w+, \d+, \w+, \w+, [^(){},]+)\)")
_MADE = r"wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(\1))"
_MARK = re.compile(r"^ *@(before|after)\b")


def opened(text: str, *, jit: bool, operators: tuple[Json, ...] = OPERATORS) -> Artifact:
    path = Path("output_code.py" if jit else "model.wrapper.cpp")
    return Artifact(path, (Wrapper(path.name, text.encode(), "cpp", path, operators),))


@cache
def framed(frame: str, body: str) -> Artifact:
    """A wrapper with this body, less its marks."""
    plain = "\n".join(line for line in body.strip("\n").split("\n") if not _MARK.match(line))
    text = FRAMES[frame].replace("@BODY@", textwrap.indent(plain, "    ") + "\n")
    return opened(text, jit=frame == "jit")


@cache
def probed(frame: str, body: str) -> str:
    """A body with marks where lines would go in. Several tests look at the same."""
    return marked(framed(frame, body))


def marked(artifact: Artifact) -> str:
    """The body of a wrapper with marks where lines would go in."""
    selection = rewriter.select("print", when="both")
    source = rewriter.instrument(artifact, selection).source.decode()
    body = source.rpartition("    auto workspace_0 = std::move(buf1_unused);\n")[2]
    body = re.split(r"\n    (?:output_handles\[0\] =|AOTInductorModelOutputs )", body)[0]
    lines = []
    for line in body.split("\n"):
        if match := _INJECTED.match(line):
            values = f" {_VIEW.sub(_MADE, match['values'])}" if match["values"] else ""
            lines.append(f"{match['indent']}@{match['phase']}{values}")
        elif "// rewriter:" not in line:
            lines.append(line)
    text = textwrap.dedent("\n".join(lines))
    return re.sub(r"^inputs\.clear\(\);\n\[\[maybe_unused\]\] auto& kernels.*\n", "", text)


def shown(launch: Launch) -> str:
    arguments = " | ".join(map(shown_argument, launch.args))
    scope = "" if launch.scope in ENTRIES else f"{launch.scope}{'*' * launch.repeats}: "
    return f"{scope}{launch.kind} {launch.kernel}: {arguments}"


ENTRIES = ("run_impl", "inductor_entry_impl", "run_impl_minimal_arrayref_interface")


def shown_argument(argument: Argument) -> str:
    later = "" if argument.later is None else f" later {argument.later or 'gone'}"
    return shapes.argument(argument) + later


# --- No launches --------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", FRAMES)
@shapes.rows("cpp/not_launches", "body")
def test_no_launch(body: str, frame: str) -> None:
    artifact = framed(frame, body)
    assert [shown(launch) for launch in artifact.launches] == []
    assert artifact.unrecognised == ()


@shapes.rows("cpp/outside", "body")
def test_no_entry(body: str) -> None:
    frame = FRAMES["aoti"].replace("@BODY@", "")
    marker = "namespace torch::aot_inductor {\n"
    assert opened(frame.replace(marker, body + marker, 1), jit=False).launches == ()


@pytest.mark.parametrize("frame", ["aoti", "jit"])
@shapes.rows("cpp/unrecognised", "body", "texts")
def test_unrecognised_calls_are_reported(body: str, texts: list[str], frame: str) -> None:
    artifact = framed(frame, body)
    assert artifact.launches == ()
    assert sorted(call.text for call in artifact.unrecognised) == sorted(texts)
    lines = artifact.only.source.decode().split("\n")
    for call in artifact.unrecognised:
        assert lines[call.line - 1].strip() == body.split("\n")[0].strip()


@shapes.rows("cpp/obstacles", "body", "reasons")
def test_what_cannot_be_probed_is_named(body: str, reasons: list[str]) -> None:
    artifact = framed("jit", body)
    assert [launch.insertion_point.obstacle for launch in artifact.launches] == reasons
    plan = rewriter.instrument(artifact, rewriter.select("print", when="both")).plan
    assert [skipped.reason for skipped in plan.skipped] == [text for text in reasons if text]


# --- Launches, what names hold, blocks and loops --------------------------------------------------

TABLES = ("cpp/launches", "cpp/data_flow", "cpp/blocks")


@shapes.bodies(*TABLES)
def test_launch(frame: str, launches: list[str], body: str) -> None:
    artifact = framed(frame, body)
    assert artifact.unrecognised == ()
    assert [shown(launch) for launch in artifact.launches] == launches
    assert probed(frame, body) == body


# --- The two traps ------------------------------------------------------------------------------


@shapes.bodies(*TABLES)
def test_a_handle_that_is_used_once_is_not_used_again(
    frame: str, launches: list[str], body: str
) -> None:
    """Whoever gets `RAIIAtenTensorHandle(tmp)` deletes it: a second one would delete it again."""
    for line in probed(frame, body).split("\n"):
        if _MARK.match(line):
            assert not re.search(r"RAIIAtenTensorHandle\(|\.release\(|std::move\(", line)
    gone = set(re.findall(r"RAIIAtenTensorHandle\((tmp_\w+)\)", body))
    for name in gone:
        _, _, behind = probed(frame, body).partition(f"RAIIAtenTensorHandle({name})")
        assert name not in behind


@shapes.bodies(*TABLES)
def test_a_result_is_read_where_it_exists(frame: str, launches: list[str], body: str) -> None:
    """What is declared behind a launch, or null before it, is not read before it; nor its handle."""
    lines = probed(frame, body).split("\n")
    for number, line in enumerate(lines):
        if not _MARK.match(line):
            continue
        assert not re.search(r"\bbuf\w*_handle\b", line)
        for name in re.findall(r"\bbuf\d+\b", line):
            above = "\n".join(lines[:number])
            made = rf"RAIIAtenTensorHandle {name}\(|\b{name}\s*=|[> ]{name}\(buf"
            assert name in ("buf0", "buf1") or re.search(made, above), f"{line}: {name}"


# --- Frames -------------------------------------------------------------------------------------

RELU = "cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));"


def text_of(frame: str, body: str = RELU) -> str:
    return framed(frame, body).only.source.decode()


def test_a_class_with_a_name_of_its_own() -> None:
    text = text_of("aoti").replace("AOTInductorModel::", "AOTInductorModelFoo::")
    assert [launch.scope for launch in opened(text, jit=False).launches] == ["run_impl"]


def test_launches_of_constant_folding_are_in_a_scope_of_their_own() -> None:
    text = text_of("aoti").replace(
        "    AOTIProxyExecutorHandle proxy_executor\n) {}\n",
        "    AOTIProxyExecutorHandle proxy_executor\n) {\n"
        "    auto w = constants_->at(0);\n"
        "    AtenTensorHandle buf0_handle;\n"
        "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, s, t, u, v, 0, &buf0_handle));\n"
        "    RAIIAtenTensorHandle buf0(buf0_handle);\n"
        "    cpp_fused_relu_0((const float*)(w.data_ptr()), (float*)(buf0.data_ptr()));\n"
        "    output_handles[0] = buf0.release();\n"
        "} // AOTInductorModel::_const_run_impl\n",
        1,
    )
    artifact = opened(text, jit=False)
    assert [shown(launch) for launch in artifact.launches] == [
        "_const_run_impl: cpp cpp_fused_relu_0: in w | out buf0",
        "cpp cpp_fused_relu_0: in arg0_1 | out buf0",
    ]
    source = rewriter.instrument(artifact, rewriter.select("print", when="both")).source.decode()
    # Each entry begins a call; the inputs are those of the one that has some.
    assert source.count("inductor_rewriter::Call _rw(") == 2
    assert source.count("_rw.inputs(arg0_1, arg1_1, arg2_1);  // rewriter:") == 1


def test_the_two_copies_of_the_arrayref_interface() -> None:
    text = text_of("arrayref", "auto* var_0 = get_data_ptr_wrapper(arg0_1);\n" + RELU)
    start = text.index("template <>\nAOTInductorModelOutputs")
    end = text.index("} // namespace torch::aot_inductor", start)
    copy = text[start:end].replace(
        text[start : text.index(") {", start)],
        "void AOTInductorModel::run_impl_minimal_arrayref_interface_v2_raw(\n"
        "    const AOTInductorArrayRefTensor* c_inputs,\n    DeviceStreamType stream\n",
    )
    copy = re.sub(
        r"std::get<(\d)>\(inputs\)",
        r"torch::aot_inductor::c_to_arrayref_tensor<float>(c_inputs[\1])",
        copy,
    )
    artifact = opened(text[:end] + copy + text[end:], jit=False)
    assert [launch.scope for launch in artifact.launches] == [
        "run_impl_minimal_arrayref_interface",
        "run_impl_minimal_arrayref_interface_v2_raw",
    ]
    assert [launch.index for launch in artifact.launches] == [0, 1]
    source = rewriter.instrument(artifact, rewriter.select("print", when="both")).source.decode()
    assert source.count("_rw.inputs(arg0_1, arg1_1, arg2_1);  // rewriter:") == 2


def test_kernels_in_the_wrapper_s_own_file() -> None:
    """As `package_cpp_only` and torch 2.6 have it: the bodies tell more than the declarations."""
    definition = (
        "\n\n\n#include <torch/csrc/inductor/cpp_prefix.h>\n"
        'extern "C"  void  cpp_fused_relu_0(const float* in_ptr0,\n'
        "                       float* out_ptr0)\n{\n"
        "    atomic_add(&out_ptr0[0], in_ptr0[0]);\n}\n"
    )
    body = "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(buf0.get()));\n" + RELU
    plain = text_of("aoti", body)
    assert [shown(launch) for launch in opened(plain, jit=False).launches] == [
        "cpp cpp_fused_relu_0: in arg0_1 | inout buf0"
    ]
    merged = opened(plain + definition, jit=False)
    assert [shown(launch) for launch in merged.launches] == [
        "cpp cpp_fused_relu_0: in arg0_1 | inout buf0"
    ]
    assert len(merged.launches) == 1


def test_a_string_that_is_not_raw() -> None:
    """Up to torch 2.6 a backslash in the file is an escape; what is inserted is escaped, too."""
    text = text_of("jit", 'printf("a \\\\n b\\\\n");\n' + RELU)
    text = text.replace("'''", "").replace('"""\n)\n', "'''\n)\n")
    text = text.replace('r"""\n#include', "'''\n#define CHECK(EXPR) \\\n    EXPR\n#include")
    artifact = opened(text, jit=True)
    (launch,) = artifact.launches
    assert text.split("\n")[launch.line - 1].strip() == RELU
    result = rewriter.instrument(artifact, rewriter.select("print,save", when="both"))
    assert marked(artifact).split("\n")[1:] == ["@before arg0_1", RELU, "@after arg0_1, buf0"]
    (inner,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(result.source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cpp_wrapper_src"
    )
    # What the compiler will see is what a raw string would have held.
    raw = rewriter.instrument(framed("jit", RELU), rewriter.select("print,save", when="both"))
    runtime = re.search(
        rb"What the probes need.*?\n(.*)\nconst char\* const op", raw.source, re.DOTALL
    )
    assert runtime is not None
    assert runtime.group(1).decode() in inner


def test_a_kernel_source_of_its_own_beside_the_wrapper_s() -> None:
    """`cpp_wrapper_build_separate`: the kernels stand in a second string."""
    text = text_of("jit")
    at = text.index("\ninductor_entry =")
    text = (
        text[:at]
        + '\nkernel_src = (\nr"""\nextern "C" void cpp_fused_relu_0() {}\n"""\n)\n'
        + text[at:]
    )
    assert [launch.kernel for launch in opened(text, jit=True).launches] == ["cpp_fused_relu_0"]


def test_provenance_stands_above_what_the_launch_needs() -> None:
    body = (
        "// Topologically Sorted Source Nodes: [h, linear_1], Original ATen: [aten.t, aten.addmm]\n"
        "// [Provenance debug handles] aoti_torch_cpu_mm_out:3\n"
        "static constexpr int64_t int_array_2[] = {32L, 64L};\n"
        "AtenTensorHandle buf5_handle;\n"
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_topk(arg0_1, 3L, &buf5_handle));\n"
        "RAIIAtenTensorHandle buf5(buf5_handle);\n" + RELU
    )
    first, second = framed("jit", body).launches
    assert (first.source_nodes, first.origins) == (("h", "linear_1"), ("aten.t", "aten.addmm"))
    assert (second.source_nodes, second.origins) == ((), ())


def test_triton_sources_above_the_string() -> None:
    """Up to torch 2.11 they stand in the docstring, with the code that tuned them."""
    source = (
        "r\"\"\"\nCompile-time auto-tuning block: \n\nmul_k_1 = async_compile.triton('mul_k', '''\n"
        "@triton_heuristics.user_autotune(\n"
        "    triton_meta={'signature': {'x': '*fp32', 'y': '*fp32', 'n': 'i32', 'B': 'constexpr'}},\n"
        "    custom_kernel=True,\n)\n@triton.jit\n"
        "def mul_k(x, y, n, B: tl.constexpr):\n    tl.store(y, tl.load(x))\n"
        "''', device_str='cuda')\nmul_k_1.run(a, b, 256, stream=stream0)\n\"\"\"\n"
    )
    body = "call_mul_k_1(arg0_1, buf0, 256, 0, stream0);"
    caller = (
        "template <typename x_type_, typename y_type_>\nstatic inline void call_mul_k_1(\n"
        "    const x_type_& x,\n    const y_type_& y,\n    int64_t n,\n    int32_t device_idx_,\n"
        "    cudaStream_t stream_\n){\n}\n"
    )
    text = text_of("jit", body).replace("CACHE_TORCH_DTYPE", caller + "CACHE_TORCH_DTYPE", 1)
    (launch,) = opened(source + text, jit=True).launches
    assert shown(launch) == (
        "triton_user mul_k_1: in arg0_1 | out buf0 | in scalar 256 | in other 0 | in other stream0"
    )


def test_a_triton_source_in_a_string_of_its_own() -> None:
    """Since torch 2.12 just in time: `<kernel>_source`, above the function that launches it."""
    source = (
        "static CUfunction add_k_9 = nullptr;\n"
        'static const char* add_k_9_source = R"TRITON(\n'
        "async_compile.triton('add_k', '''\n@triton_heuristics.user_autotune(\n"
        "    triton_meta={'signature': {'x': '*fp32', 'y': '*fp32'}}, custom_kernel=True)\n"
        "@triton.jit\ndef add_k(x, y):\n    tl.store(y, tl.load(x))\n''', device_str='cuda')\n"
        ')TRITON";\ntemplate <typename x_type_>\n'
        "static __attribute__((noinline)) void call_add_k_9(\n    const x_type_& x,\n"
        "    const y_type_& y,\n    int32_t device_idx_,\n    cudaStream_t stream_\n){\n}\n"
    )
    text = text_of("jit", "call_add_k_9(arg0_1, buf0, 0, stream0);")
    text = text.replace("CACHE_TORCH_DTYPE", source + "CACHE_TORCH_DTYPE", 1)
    (launch,) = opened(text, jit=True).launches
    assert shown(launch) == (
        "triton_user add_k_9: in arg0_1 | out buf0 | in other 0 | in other stream0"
    )


# --- The operators of a wrapper, in a file beside it ----------------------------------------------

PROXY = (
    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 1, 0, "
    "std::array<int64_t, 0>{}.data(), 2, std::array<AtenTensorHandle, 2>{arg0_1, arg1_1}.data()));"
)


# They go into the C++ as they are written, where there is no `True` and no `inf`.
NUMBERS = [
    {"name": "a", "arg": {"as_tensors": [{"name": "arg0_1"}, {"name": "arg1_1"}]}},
    {"name": "b", "arg": {"as_bool": True}},
    {"name": "c", "arg": {"as_int": -2}},
    {"name": "d", "arg": {"as_float": 1e-05}},
    {"name": "e", "arg": {"as_float": float("inf")}},
    {"name": "f", "arg": {"as_float": float("nan")}},
]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ((), "custom_op proxy_executor_call_1: inout arg0_1 | inout arg1_1"),
        (OPERATORS[:1], "custom_op proxy_executor_call_1: inout arg0_1 | inout arg1_1"),
        (OPERATORS, "custom_op torch.ops.corp.inc_.default: inout arg0_1 | inout arg1_1"),
        (({}, {}), "custom_op proxy_executor_call_1: inout arg0_1 | inout arg1_1"),
        (
            ({}, {"node": {"target": "aten::median.dim", "outputs": [{"as_tensor": {}}]}}),
            "fallback torch.ops.aten.median.dim: in arg0_1 | in arg1_1",
        ),
        (
            ({}, {"node": {"target": "corp::f", "inputs": NUMBERS, "outputs": [{}]}}),
            "custom_op torch.ops.corp.f.default: in arg0_1 | in arg1_1"
            " | in scalar true | in scalar -2 | in scalar 1e-05",
        ),
    ],
    ids=["none", "too few", "there", "empty nodes", "an overload", "numbers"],
)
def test_operators_by_number(operators: tuple[Json, ...], expected: str) -> None:
    artifact = opened(text_of("aoti", PROXY), jit=False, operators=operators)
    assert [shown(launch) for launch in artifact.launches] == [expected]


def test_operators_are_read_from_the_file_beside(tmp_path: Path) -> None:
    path = tmp_path / "model.wrapper.cpp"
    path.write_text(text_of("aoti", PROXY))
    beside = tmp_path / "model.wrapper.json"
    assert rewriter.open(path).launches[0].kernel == "proxy_executor_call_1"
    beside.write_text(json.dumps({"nodes": OPERATORS}))
    assert rewriter.open(path).launches[0].kernel == "torch.ops.corp.inc_.default"
    # Nodes that are no objects are nodes of which nothing is known.
    beside.write_text('{"nodes": [1, "x"]}')
    assert rewriter.open(path).launches[0].kernel == "proxy_executor_call_1"
