# ruff: noqa: E501
"""Every form that a launch takes in a C++ wrapper, and what looks like one and is none.

The body of a row is what Inductor writes into an entry, with the lines that our probes add to it:
`@before` and `@after` name the values that are read there. A row without them is not probed. What the
locator finds is written as `shown` does it: scope, kind, kernel, then `role [type] name
[= expression] [@ buffer] [later expression]` per argument.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from pathlib import Path

import pytest

import rewriter
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.locate.types import Argument, Launch, Wrapper

# What the launches of the rows call.
KERNELS = """\
extern "C"  void  cpp_fused_relu_0(const float* in_ptr0,
                       float* out_ptr0);
extern "C"  void  cpp_fused_add_1(float* in_out_ptr0,
                       const float* in_ptr0,
                       const int64_t ks0,
                       const int64_t ks1);
extern "C"  void  cpp_fused_inplace_2(float* in_out_ptr0,
                       const float* in_ptr0);
extern "C"  void  cpp_fused_cat_4(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1);
extern "C" \nvoid cpp_fused_mm_3(const float* X, const float* W, float* Y);

template <typename in_ptr0_type_, typename out_ptr0_type_, typename kernels_type_>
static inline void call_triton_poi_fused_relu_0(
    const in_ptr0_type_& in_ptr0,
    const out_ptr0_type_& out_ptr0,
    int64_t xnumel,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    launchKernel(kernels_.triton_poi_fused_relu_0, grid_0, 1, 1, 4, 0, kernel_args_, stream_);
}

template <typename in_out_ptr0_type_, typename in_ptr0_type_, typename kernels_type_>
static inline void call_triton_poi_fused_add_1(
    const in_out_ptr0_type_& in_out_ptr0,
    const in_ptr0_type_& in_ptr0,
    int64_t xnumel,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
}

template <typename a_type_, typename b_type_, typename o_type_, typename kernels_type_>
static __attribute__((noinline)) void call_add_k_0(
    const a_type_& a,
    const b_type_& b,
    const o_type_& o,
    int64_t n,
    float scale,
    int64_t _grid_0,
    int64_t _grid_1,
    int64_t _grid_2,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    /*
    async_compile.triton('add_k', '''
    @triton_heuristics.user_autotune(
        triton_meta={'signature': {'a': '*fp32', 'b': '*fp32', 'o': '*fp32', 'n': 'i32', 'scale': 'fp32', 'B': 'constexpr'}},
        custom_kernel=True,
    )
    @triton.jit
    def add_k(a, b, o, n, scale, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(o + i, tl.load(a + i) + scale * tl.load(b + i))
    ''', device_str='cuda')
    */
}

template <typename in_ptr0_type_, typename out_ptr0_type_, typename out_ptr1_type_>
static inline void call_triton_poi_fused_2(
    const in_ptr0_type_& in_ptr0,
    const out_ptr0_type_& out_ptr0,
    const out_ptr1_type_& out_ptr1,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    /*
    async_compile.triton('triton_poi_fused_2', '''
    @triton_heuristics.foreach(
        triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'out_ptr1': '*fp32'}},
        inductor_meta={'grid_type': 'SequentialComboKernelGrid', 'combo_grid_meta': {'num_kernels': 2}},
    )
    @triton.jit
    def triton_poi_fused_2(in_ptr0, out_ptr0, out_ptr1):
        pass
    ''', device_str='cuda')
    */
}
"""

PARAMETERS = """\
    AtenTensorHandle*
        input_handles, // array of input AtenTensorHandle; handles
                        // are stolen; the array itself is borrowed
    AtenTensorHandle*
        output_handles{comma} // array for writing output AtenTensorHandle; handles
                        // will be stolen by the caller; the array itself is
                        // borrowed)
"""
# What every body can use: inputs, a constant, a size, two buffers that hold nothing.
START = """\
    auto arg0_1 = {from0};
    auto arg1_1 = {from1};
    auto arg2_1 = {from2};
    {constant}
    int64_t s0 = 4L;
    static constexpr int64_t int_array_0[] = {{4L, 4L}};
    static constexpr int64_t int_array_1[] = {{4L, 1L}};
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    AtenTensorHandle buf1_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf1_handle));
    RAIIAtenTensorHandle buf1(buf1_handle);
    auto workspace_0 = std::move(buf1_unused);
"""
START_MOVED = START.format(
    **{f"from{index}": f"std::move(inputs[{index}])" for index in range(3)},
    constant="[[maybe_unused]] auto& w = constants_->at(0);",
)
START_ARRAYREF = START.format(
    **{f"from{index}": f"std::get<{index}>(inputs)" for index in range(3)},
    constant="auto w = constants_->at(0);",
)

AOTI = f"""
#include <torch/csrc/inductor/aoti_include/cpu.h>

{KERNELS}
namespace torch::aot_inductor {{
AOTInductorModel::AOTInductorModel(std::shared_ptr<ConstantMap> constants_map) {{
}}
void AOTInductorModel::_const_run_impl(
    std::vector<AtenTensorHandle>& output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {{}}

void AOTInductorModel::run_impl(
{PARAMETERS.format(comma=",")}\
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {{
    __check_inputs_outputs(input_handles, output_handles);

    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 3);
{START_MOVED}\
    inputs.clear();
    [[maybe_unused]] auto& kernels = static_cast<AOTInductorModelKernels&>(*this->kernels_.get());
%s\
    output_handles[0] = buf0.release();
}} // AOTInductorModel::run_impl
}} // namespace torch::aot_inductor
"""

ARRAYREF = f"""
#include <torch/csrc/inductor/aoti_include/array_ref.h>

{KERNELS}
namespace torch::aot_inductor {{
template <>
AOTInductorModelOutputs AOTInductorModel::run_impl_minimal_arrayref_interface<
  AOTInductorModelInputs, AOTInductorModelOutputs>(
    const AOTInductorModelInputs& inputs,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {{
{START_ARRAYREF}\
%s\
    AOTInductorModelOutputs output_arrayref_tensors;
    return output_arrayref_tensors;
}} // AOTInductorModel::run_impl
}} // namespace torch::aot_inductor
"""

JIT = f"""
import torch
from torch._inductor.codecache import CppWrapperCodeCache

cpp_wrapper_src = (
r\"\"\"
#include <torch/csrc/inductor/cpp_wrapper/cpu.h>
{KERNELS}
CACHE_TORCH_DTYPE(float32);
CACHE_TORCH_DEVICE(cpu);
void inductor_entry_impl(
{PARAMETERS.format(comma=" ")}\
) {{
    py::gil_scoped_release_simple release;
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 3);
{START_MOVED}\
%s\
    output_handles[0] = buf0.release();
}} // inductor_entry_impl
\"\"\"
)

inductor_entry = CppWrapperCodeCache.load_pybinding(
    argtypes=["std::vector<AtenTensorHandle>"], main_code=cpp_wrapper_src, num_outputs=1
)
call = _wrap_func(inductor_entry)
"""
FRAMES = {"aoti": AOTI, "arrayref": ARRAYREF, "jit": JIT}

# What `proxy_executor` calls by number: the nodes of a `.wrapper.json`.
OPERATORS: tuple[Json, ...] = (
    {
        "name": "buf4",
        "node": {
            "target": "corp::scale",
            "inputs": [
                {"name": "x", "arg": {"as_tensor": {"name": "arg0_1"}}},
                {"name": "f", "arg": {"as_float": 2.5}},
                {"name": "n", "arg": {"as_int": 3}},
            ],
            "outputs": [{"as_tensor": {"name": "buf5"}}],
        },
    },
    {
        "name": "buf6",
        "node": {
            "target": "corp::inc_",
            "inputs": [
                {"name": "x", "arg": {"as_tensor": {"name": "arg0_1"}}},
                {"name": "y", "arg": {"as_tensor": {"name": "arg1_1"}}},
            ],
            "outputs": [],
        },
    },
    {
        "name": "buf7",
        "node": {
            "target": "_c10d_functional::all_reduce_coalesced_",
            "inputs": [
                {
                    "name": "inputs",
                    "arg": {"as_tensors": [{"name": "arg0_1"}, {"name": "arg1_1"}]},
                },
                {"name": "op", "arg": {"as_string": "sum"}},
            ],
            "outputs": [{"as_tensors": [{"name": "buf8"}, {"name": "buf9"}]}],
        },
    },
)

_INJECTED = re.compile(
    r"^(?P<indent> *)_rw\.(?P<phase>before|after)\(\d+(?:, (?P<values>.*))?\);  // rewriter:\w+$"
)
# A view is written as what makes it; the rows have it as the launch does.
_VIEW = re.compile(r"_rw\.view\((\w+, \d+, \w+, \w+, [^(){},]+)\)")
_MADE = r"wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(\1))"
_MARK = re.compile(r"^ *@(before|after)\b")


def opened(text: str, *, jit: bool, operators: tuple[Json, ...] = OPERATORS) -> Artifact:
    path = Path("output_code.py" if jit else "model.wrapper.cpp")
    wrapper = Wrapper(path.name, text.encode(), "cpp")
    return Artifact(path, (OpenWrapper(wrapper, path, operators),))


def framed(frame: str, body: str) -> Artifact:
    """A wrapper with this body, less its marks."""
    plain = "\n".join(line for line in body.strip("\n").split("\n") if not _MARK.match(line))
    text = FRAMES[frame] % (textwrap.indent(plain, "    ") + "\n")
    return opened(text, jit=frame == "jit")


def probed(artifact: Artifact) -> str:
    """The body with marks where lines would go in."""
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
    type_ = "" if argument.type == "tensor" else f"{argument.type} "
    expr = "" if argument.expr == argument.name else f" = {argument.expr}"
    buffer = "" if argument.buffer in (argument.name, "") else f" @ {argument.buffer}"
    later = "" if argument.later is None else f" later {argument.later or 'gone'}"
    return f"{argument.role} {type_}{argument.name}{expr}{buffer}{later}"


# --- No launches --------------------------------------------------------------------------------

NOT_LAUNCHES = {
    "nothing": "",
    "empty_strided": "AtenTensorHandle buf2_handle;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf2_handle));\nRAIIAtenTensorHandle buf2(buf2_handle);",
    "empty_strided_pinned": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided_pinned(1, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf2_handle));",
    "alloc_from_pool": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__alloc_from_pool(pool2, 0, cached_torch_dtype_float32, 1, int_array_0, int_array_1, &tmp_tensor_handle_3));",
    "new_uninitialized_tensor": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf5_handle));",
    "stack": "float buf3_storage[4];\nArrayRefTensor<float> buf3(buf3_storage, int_array_0, int_array_1, cached_torch_device_type_cpu, this->device_idx_);",
    "reinterpret_tensor": "auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L));  // alias",
    "view_dtype": "AtenTensorHandle tmp_buf0_0;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(buf0, cached_torch_dtype_int32, &tmp_buf0_0));\nauto var_0 = RAIIAtenTensorHandle(tmp_buf0_0);",
    "view_dtype, CUDA": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_view_dtype(buf0, cached_torch_dtype_int32, &tmp_buf0_0));",
    "as_strided": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_as_strided(buf0_handle, int_array_0, int_array_1, &buf0_handle_restrided));",
    "new_tensor_handle": "AtenTensorHandle tmp_buf0_1;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(buf0, &tmp_buf0_1));",
    "assign_tensors_out": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(arg0_1, &true_graph_0_arg0_1_handle));",
    "copy_": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(buf0, arg0_1, 0));",
    "copy_, torch 2.6": "aoti_torch_copy_(expensive_copy_to_tensor_if_needed(buf0), arg0_1, 0);",
    "zero_": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(workspace_0.get()));",
    "copy_data_from": "buf0.copy_data_from(arg0_1);",
    "clone": "aoti_torch_clone(w, &output_handles[1]);",
    "clone, torch 2.15": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_clone(w, &output_handles[1]));",
    "aligned copy of an input": "if ((reinterpret_cast<std::uintptr_t>(arg0_1.data_ptr()) & (16 -1)) != 0) {\n    AOTI_TORCH_WARN(\"Input 0 was compiled as 16-bytes aligned\");\n    AtenTensorHandle arg0_1_aligned;\n    aoti_torch_clone_preserve_strides(arg0_1, &arg0_1_aligned);\n    arg0_1 = std::move(RAIIAtenTensorHandle(arg0_1_aligned));\n}",
    "alignment, torch 2.6": "if ((long(arg0_1.data_ptr()) & (16 -1)) != 0) {\n    throw std::runtime_error(\"not aligned\");\n}",
    "assert_size_stride": "assert_size_stride(arg0_1, {4L, 4L}, {4L, 1L}, \"input\");",
    "assert_size_stride, torch 2.15": "assert_size_stride(arg0_1, {4L, 4L}, {4L, 1L}, \"input\", cached_torch_dtype_float32, \"torch.float32\");",
    "assert_size_stride, any text": "assert_size_stride(buf0, {4L}, {1L}, \"torch._inductor.fx_passes.functools.partial(<function f at 0x7f>, Match(..., [arg5_1], {cpp_fused_relu_0(buf0);}))\");",
    "checks that the environment turns on": "if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(arg0_1, {4L, 4L}, {4L, 1L}, \"input\"); }",
    "assert_alignment": "assert_alignment(arg0_1, 16, \"torch.ops.aten.topk\");",
    "assert_numel": "assert_numel(arg0_1, 512);",
    "NaN check": "aoti_torch_check_inf_and_nan(\"arg0_1\", arg0_1);",
    "runtime assertion": "if (!(s0 >= 2L)) { throw std::runtime_error(\"Expected u0 >= 2 but received \" + std::to_string(s0)); }",
    "AOTI_TORCH_CHECK": "AOTI_TORCH_CHECK(s0 != 0L, \"division by zero\");",
    "device guard": "AOTICudaGuard device_guard(0);\nAOTICudaStreamGuard stream_guard(stream, this->device_idx_);\ndevice_guard.set_index(0);",
    "stream": "cudaStream_t stream0;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(0, (void**)&stream0));",
    "stream, XPU": "sycl::queue* stream0;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_xpu_stream(0, (void**)&stream0));",
    "synchronisation": "CUDA_DRIVER_CHECK(cuCtxSynchronize());\nAOTI_RUNTIME_CUDA_CHECK(cudaDeviceSynchronize());",
    "streams and events, torch 2.15": "auto stream1 = _aoti_aux_stream_cache.get(1, this->device_idx_);\nauto _aoti_current_stream_guard = std::make_unique<AOTICudaStreamGuard>(stream1, this->device_idx_);\nAOTI_RUNTIME_CUDA_CHECK(cudaEventRecord(_aoti_event_cache.get(0), stream1));\nAOTI_RUNTIME_CUDA_CHECK(cudaStreamWaitEvent(stream, _aoti_event_cache.get(0), 0));\n_aoti_current_stream_guard.reset();",
    "a kernel is loaded": "if (triton_poi_fused_0 == nullptr) {\n    triton_poi_fused_0 = loadKernel(\"/tmp/k.cubin\", \"triton_poi_fused_0\", 0);\n}",
    "a grid": "Grid triton_poi_fused_0_grid_0 = Grid(4L, 1L, 1L);",
    "TMA descriptors": "CUtensorMap tma_desc0;\ninit2DTMADescriptor(&tma_desc0, reinterpret_cast<void*>(*(&var_0)), 8, 8, 4, 4, 4);\ninitTMADescriptor(&d.m, var_0, 4, 1, int_array_0);",
    "kernels begin to compile": "ensure_triton_kernel_compiles_started();",
    "sizes": "auto arg0_1_size = arg0_1.sizes();\nint64_t s77 = arg0_1_size[0];\nint64_t s78 = arg0_1.sizes()[0];\nint64_t ps0 = s77*s78;",
    "item": "bool buf0_scalar;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(buf0, &buf0_scalar));",
    "an input that is a number": "int64_t arg9_1;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_int64(inputs[0], &arg9_1));",
    "a half input that is a number": "at::Half arg9_1_tmp;\nAOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_float16(inputs[0], &arg9_1_tmp));\nfloat arg9_1 = float(arg9_1_tmp);",
    "arithmetic": "int64_t u0 = std::max(static_cast<int64_t>(s0), static_cast<int64_t>(2L));\nint64_t u1 = std::max<int64_t>({s0, u0, 3L});\nauto u2 = (buf0.size(0) / 2);\nauto u3 = c10::div_floor_integer(static_cast<int64_t>(u1), static_cast<int64_t>(2L));\ndouble zf0 = 1.0/std::sqrt(static_cast<double>(s0));\ndouble zf1 = math.sin(zf0);\nint64_t u4 = s0 ? 1 : 0;",
    "a dynamic slice": "auto u4_index = s0;\nauto u4_index_clamped = u4_index < 0 ? 0 : u4_index;\nauto u4 = u4_index_clamped;",
    "reuse": "auto buf2 = std::move(buf0);  // reuse",
    "reset": "buf0.reset(); arg0_1.reset(); workspace_0.reset();",
    "release": "output_handles[1] = buf1.release();\noutput_handles[2] = output_handles[1];",
    "a handle is deleted": "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_delete_tensor_object(buf1_handle));",
    "GIL": "py::gil_scoped_release release;\npy::gil_scoped_acquire_simple acquire;",
    "profiled entry": "RECORD_FUNCTION(\"inductor_wrapper_call\", c10::ArrayRef<c10::IValue>());\nRAIIAtenRecordFunctionHandle record_inductor_wrapper_call_(\"inductor_wrapper_call\", nullptr);",
    "Python is called later": "RAIIPyObject custom_op_wrapper;\n{\n    py::gil_scoped_acquire_simple acquire;\n    RAIIPyObject codecache_module(PyImport_ImportModule(\"torch._inductor.codecache\"));\n    if (!codecache_module) {\n        throw std::runtime_error(\"Failed to load torch._inductor.codecache\");\n    }\n    custom_op_wrapper = PyObject_GetAttrString(codecache_module, \"custom_op_wrapper\");\n}",
    "upstream's printer": "aoti_torch_print_tensor_handle(buf0, \"after_launch - cpp_fused_relu_0 - buf0\");\naoti_torch_save_tensor_handle(buf0, \"buf0\", \"after_launch\", \"cpp_fused_relu_0\");\nprintf(\"[ before_launch: cpp_fused_relu_0 ]\\n\");",
    "a comment": "// cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));\n/* call_triton_poi_fused_relu_0(arg0_1, buf0, 512L, 0, stream0); */",
    "a string": "auto text = \"aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1);\";",
    "a raw string": "KernelContextGuard _ctx(\"aoti_torch_cpu_addmm_out\", R\"(\n    cpp_fused_relu_0(buf0);  } return aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1);\n)\");",
    "a predicate in the head of a block": "if (s0 > 3L) {\n    buf0.reset();\n}\nwhile (1) {\n    if (!buf0_cond_result) break;\n}",
    "a name like a kernel's": "auto cpp_fused_relu_0_done = s0;\nauto call_me = s0;",
    "arrayref returns": "thread_local RAIIAtenTensorHandle cached_output_0;\nif constexpr (std::is_same_v<std::decay_t<decltype(buf0)>,RAIIAtenTensorHandle>) {\n    cached_output_0 = buf0.release();\n}",
}  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("body", NOT_LAUNCHES.values(), ids=NOT_LAUNCHES)
def test_no_launch(body: str, frame: str) -> None:
    artifact = framed(frame, body)
    assert [shown(launch) for launch in artifact.launches] == []
    assert artifact.unrecognised == ()


# What stands outside of entries is no launch, whatever it calls.
OUTSIDE = {
    "the definition of a kernel": 'extern "C" void cpp_fused_relu_0(const float* x, float* y)\n{\n    cpp_fused_relu_0(x, y);\n}\n',
    "the function that launches": "static inline void call_k(int x) {\n    launchKernel(kernels_.k, x, 1, 1, 4, 0, args, stream);\n}\n",
    "a method of the model": "void AOTInductorModel::const_run_impl(int x) {\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n",
    "another class": "void AOTInductorModelKernels::run_it(int x) {\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n",
    "a function of a like name": "void my_run_impl(int x) {\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n",
    "checks of inputs": "AOTI_NOINLINE static void __check_inputs_outputs(AtenTensorHandle* a, AtenTensorHandle* b) {\n    check_input_0(a);\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n",
    "a whole entry in a comment": "/*\nvoid AOTInductorModel::run_impl(int x) {\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n*/\n",
    "a whole entry in a string": 'static const char* s = R"TRITON(\nvoid AOTInductorModel::run_impl(int x) {\n    aoti_torch_cpu_mm_out(a, b, c);\n}\n)TRITON";\n',
}  # fmt: skip


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
def test_no_entry(text: str) -> None:
    frame = FRAMES["aoti"] % ""
    marker = "namespace torch::aot_inductor {\n"
    assert opened(frame.replace(marker, text + marker, 1), jit=False).launches == ()


UNRECOGNISED = {
    "function": ("mystery(buf0);", ["mystery(buf0)"]),
    "checked": ("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_mystery(buf0));", ["aoti_torch_mystery(buf0)"]),
    "method": ("buf0.mystery();", ["buf0.mystery()"]),
    "assigned": ("auto buf2 = mystery(arg0_1);", ["mystery(arg0_1)"]),
    "in a namespace": ("corp::mystery(buf0);", ["corp::mystery(buf0)"]),
    "template": ("mystery<float>(buf0);", ["mystery<float>(buf0)"]),
    "argument of a check": ("assert_size_stride(mystery(buf0), {4L}, {1L});", ["mystery(buf0)"]),
    "in the head of a block": ("if (mystery(s0)) {\n    buf0.reset();\n}", ["mystery(s0)"]),
    "over several lines": ("mystery(\n    arg0_1,\n    buf0\n);", ["mystery( arg0_1, buf0 )"]),
    "two on a line": ("first(buf0); second(buf0);", ["first(buf0)", "second(buf0)"]),
    "a kernel's name with more before it": ("my_cpp_fused_relu_0(buf0);", ["my_cpp_fused_relu_0(buf0)"]),
    "a shim that is not torch's": ("corp_torch_cpu_mm_out(buf0, arg0_1);", ["corp_torch_cpu_mm_out(buf0, arg0_1)"]),
    "Metal": (
        "aoti_torch_mps_run_command_block(get_mps_lib_0_handle(), aoti_torch_mps_shared_callback, &f);",
        ["aoti_torch_mps_run_command_block(get_mps_lib_0_handle(), aoti_torch_mps_shared_callback, &f)", "get_mps_lib_0_handle()"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("frame", ["aoti", "jit"])
@pytest.mark.parametrize(("body", "texts"), UNRECOGNISED.values(), ids=UNRECOGNISED)
def test_unrecognised_calls_are_reported(body: str, texts: list[str], frame: str) -> None:
    artifact = framed(frame, body)
    assert artifact.launches == ()
    assert sorted(call.text for call in artifact.unrecognised) == sorted(texts)
    lines = artifact.only.source.decode().split("\n")
    for call in artifact.unrecognised:
        assert lines[call.line - 1].strip() == body.split("\n")[0].strip()


OBSTACLES = {
    "two launches on a line": (
        "aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL); aoti_torch_cpu_bernoulli__float(arg1_1, 0.5, NULL);",
        ["another statement shares its line"] * 2,
    ),
    "a statement behind it": (
        "aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL); arg0_1.reset();",
        ["another statement shares its line"],
    ),
    "a branch without braces": (
        "if (s0 > 3L) aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL);",
        ["it is a branch without braces"],
    ),
    "the head of a block": (
        "if (aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL)) {\n    arg0_1.reset();\n}",
        ["it stands in the head of a block"],
    ),
    "a comment behind it is none": (
        "aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL);  // drawn",
        [""],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reasons"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_cannot_be_probed_is_named(body: str, reasons: list[str]) -> None:
    artifact = framed("jit", body)
    assert [launch.insertion_point.obstacle for launch in artifact.launches] == reasons
    plan = rewriter.instrument(artifact, rewriter.select("print", when="both")).plan
    assert [skipped.reason for skipped in plan.skipped] == [text for text in reasons if text]


# --- Each form of a launch -------------------------------------------------------------------------

LAUNCHES = r"""
== cpp kernel | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
== cpp kernel in place, with sizes | jit
> cpp cpp_fused_add_1: inout arg2_1 | in arg0_1 | in scalar s0 | in scalar s0 = 2L*s0
@before arg2_1, arg0_1, s0, 2L*s0
cpp_fused_add_1((float*)(arg2_1.data_ptr()), (const float*)(arg0_1.data_ptr()), s0, 2L*s0);
@after arg2_1, arg0_1, s0, 2L*s0
== cpp kernel that updates | aoti
> cpp cpp_fused_inplace_2: inout arg0_1 | in arg1_1
@before arg0_1, arg1_1
cpp_fused_inplace_2((float*)(arg0_1.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after arg0_1, arg1_1
== cpp kernel of other types | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
@before arg0_1
cpp_fused_relu_0((const at::Float8_e4m3fn*)(arg0_1.data_ptr()), (at::BFloat16*)(buf0.data_ptr()));
@after arg0_1, buf0
== cpp template: only const tells | jit
> cpp cpp_fused_mm_3: in arg0_1 | in arg1_1 | out buf0
@before arg0_1, arg1_1
cpp_fused_mm_3((const float*)(arg0_1.data_ptr()), (const float*)(arg1_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, arg1_1, buf0
== cpp kernel that is not declared | aoti
> cpp cpp_fused_secret_9: in arg0_1 | out buf0 | inout arg1_1
@before arg0_1, arg1_1
cpp_fused_secret_9((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()), (float*)(arg1_1.data_ptr()));
@after arg0_1, buf0, arg1_1
== cpp kernel, the same tensor read and written | jit
> cpp cpp_fused_relu_0: inout arg0_1 | inout arg0_1
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(arg0_1.data_ptr()));
@after arg0_1
== cpp kernel in arrayref mode | arrayref
> cpp cpp_fused_relu_0: in arg0_1 | out buf3
float buf3_storage[4];
ArrayRefTensor<float> buf3(buf3_storage, int_array_0, int_array_1, cached_torch_device_type_cpu, this->device_idx_);
auto* var_2 = get_data_ptr_wrapper(arg0_1);
auto* var_4 = get_data_ptr_wrapper(buf3);
@before arg0_1
cpp_fused_relu_0((const float*)(var_2), (float*)(var_4));
@after arg0_1, buf3
== triton, AOTInductor | aoti
> triton triton_poi_fused_relu_0: in arg0_1 | out buf0 | in scalar 512L | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
@before arg0_1
call_triton_poi_fused_relu_0(arg0_1, buf0, 512L, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg0_1, buf0
== triton, just in time | jit
> triton triton_poi_fused_relu_0: in arg0_1 | out buf0 | in scalar 512L | in other 0 | in other stream0
cudaStream_t stream0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(0, (void**)&stream0));
@before arg0_1
call_triton_poi_fused_relu_0(arg0_1, buf0, 512L, 0, stream0);
@after arg0_1, buf0
== triton, in place, symbolic size | aoti
> triton triton_poi_fused_add_1: inout arg2_1 | in arg0_1 | in scalar triton_poi_fused_add_1_xnumel | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
> triton triton_poi_fused_add_1: inout arg2_1 | in arg0_1 | in scalar triton_poi_fused_add_1_xnumel | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
int64_t triton_poi_fused_add_1_xnumel = 2L*s0;
@before arg2_1, arg0_1, triton_poi_fused_add_1_xnumel
call_triton_poi_fused_add_1(arg2_1, arg0_1, triton_poi_fused_add_1_xnumel, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg2_1, arg0_1, triton_poi_fused_add_1_xnumel
triton_poi_fused_add_1_xnumel = 4L*s0;
@before arg2_1, arg0_1, triton_poi_fused_add_1_xnumel
call_triton_poi_fused_add_1(arg2_1, arg0_1, triton_poi_fused_add_1_xnumel, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg2_1, arg0_1, triton_poi_fused_add_1_xnumel
== triton, not finite | jit
> triton triton_poi_fused_relu_0: in arg0_1 | out buf0 | in other std::numeric_limits<double>::infinity() | in other 0 | in other stream0
@before arg0_1
call_triton_poi_fused_relu_0(arg0_1, buf0, std::numeric_limits<double>::infinity(), 0, stream0);
@after arg0_1, buf0
== triton on the CPU: no device, no stream | jit
> triton triton_poi_fused_relu_0: in arg0_1 | out buf0 | in scalar 512L
@before arg0_1
call_triton_poi_fused_relu_0(arg0_1, buf0, 512L);
@after arg0_1, buf0
== triton kernel that nobody defines here | jit
> triton triton_red_fused_sum_7: inout arg0_1 | out buf0 | in scalar 512L | in scalar 0 | in other stream0
@before arg0_1
call_triton_red_fused_sum_7(arg0_1, buf0, 512L, 0, stream0);
@after arg0_1, buf0
== somebody's triton kernel, source known | aoti
> triton_user add_k_0: in arg0_1 | in arg1_1 | out buf0 | in scalar 256 | in scalar 2.5 | in scalar 4L | in scalar 1L | in scalar 1L | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
@before arg0_1, arg1_1
call_add_k_0(arg0_1, arg1_1, buf0, 256, 2.5, 4L, 1L, 1L, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg0_1, arg1_1, buf0
== somebody's triton kernel, source unknown | jit
> triton_user mul_k_1: inout arg0_1 | out buf0 | in scalar 256 | in scalar 0 | in other stream0
@before arg0_1
call_mul_k_1(arg0_1, buf0, 256, 0, stream0);
@after arg0_1, buf0
== triton template | jit
> triton_template triton_tem_fused_mm_0: inout arg0_1 | inout arg1_1 | out buf0 | in scalar 16L | in scalar 1 | in scalar 1 | in scalar 0 | in other stream0
@before arg0_1, arg1_1
call_triton_tem_fused_mm_0(arg0_1, arg1_1, buf0, 16L, 1, 1, 0, stream0);
@after arg0_1, arg1_1, buf0
== combo kernel | aoti
> combo triton_poi_fused_2: in arg0_1 | out buf0 | out buf1 | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
@before arg0_1
call_triton_poi_fused_2(arg0_1, buf0, buf1, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg0_1, buf0, buf1
== foreach kernel, source unknown | jit
> combo triton_for_fused_0: inout arg0_1 | out buf0 | in scalar 0 | in other stream0
@before arg0_1
call_triton_for_fused_0(arg0_1, buf0, 0, stream0);
@after arg0_1, buf0
== multi-kernel | aoti
> multi_kernel multi_kernel_0: inout arg0_1 | out buf0 | in scalar 64L | in scalar 1000L | in other this->device_idx_ | in other stream | in other kernels | in other this->cubin_dir_
@before arg0_1
call_multi_kernel_0(arg0_1, buf0, 64L, 1000L, this->device_idx_, stream, kernels, this->cubin_dir_);
@after arg0_1, buf0
== triton, torch 2.6 | jit
> triton triton_poi_fused_0: out buf0 | inout arg1_1 | in scalar var_2
if (triton_poi_fused_0 == nullptr) {
    triton_poi_fused_0 = loadKernel("/tmp/k.cubin", "triton_poi_fused_0", 0);
}
CUdeviceptr var_0 = reinterpret_cast<CUdeviceptr>(buf0.data_ptr());
CUdeviceptr var_1 = reinterpret_cast<CUdeviceptr>(arg1_1.data_ptr());
int var_2 = 512L;
void* kernel_args_var_0[] = {&var_0, &var_1, &var_2};
Grid triton_poi_fused_0_grid_0 = Grid(4L, 1L, 1L);
@before arg1_1, var_2
if (triton_poi_fused_0_grid_0.is_non_zero()) {
    launchKernel(triton_poi_fused_0, triton_poi_fused_0_grid_0.grid_x, triton_poi_fused_0_grid_0.grid_y, triton_poi_fused_0_grid_0.grid_z, 4, 0, kernel_args_var_0, stream0);
}
@after buf0, arg1_1, var_2
arg1_1.reset();
== triton, torch 2.6, AOTInductor, a number out of a tensor | aoti
> triton triton_poi_fused_0: inout arg0_1 | in scalar var_3
float var_3;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_float32(arg1_1, &var_3));
CUdeviceptr var_0 = reinterpret_cast<CUdeviceptr>(arg0_1.data_ptr());
void* kernel_args_var_0[] = {&var_0, &var_3};
Grid triton_poi_fused_0_grid_0 = Grid(4L, 1L, 1L);
@before arg0_1, var_3
if (triton_poi_fused_0_grid_0.is_non_zero()) {
    launchKernel(kernels.triton_poi_fused_0, triton_poi_fused_0_grid_0.grid_x, triton_poi_fused_0_grid_0.grid_y, triton_poi_fused_0_grid_0.grid_z, 4, 0, kernel_args_var_0, stream);
}
@after arg0_1, var_3
== CUTLASS, AOTInductor | aoti
> cuda cuda_fused_0: in arg0_1 | in arg1_1 | out buf0 | in scalar 512L | in scalar 0 | in other nullptr | in other workspace_0 | in other stream
@before arg0_1, arg1_1
kernels.cuda_fused_0((const half*)arg0_1.data_ptr(), (const half*)arg1_1.data_ptr(), (half*)buf0.data_ptr(), (const int)512L, (uint8_t)0, (size_t*)nullptr, (uint8_t*)workspace_0.data_ptr(), stream);
@after arg0_1, arg1_1, buf0
== CUTLASS, just in time | jit
> cuda cutlass_fused_0: in arg0_1 | out buf0 | in scalar 32 | in other nullptr | in other stream0
@before arg0_1
cutlass_fused_0((const half*)arg0_1.data_ptr(), (half*)buf0.data_ptr(), 32, (uint8_t*)nullptr, stream0);
@after arg0_1, buf0
== extern into a buffer | aoti
> extern_out aoti_torch_cpu_addmm_out: out buf0 | in arg1_1 | in arg2_1 | in arg0_1 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_2, int_array_3, 0L)) | in scalar 1L | in scalar 1L
// Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
static constexpr int64_t int_array_2[] = {32L, 64L};
static constexpr int64_t int_array_3[] = {1L, 32L};
@before arg1_1, arg2_1, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_2, int_array_3, 0L))
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, arg1_1, arg2_1, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_2, int_array_3, 0L)), 1L, 1L));
@after buf0, arg1_1, arg2_1, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_2, int_array_3, 0L))
arg0_1.reset();
== extern into a buffer, torch 2.6 | jit
> extern_out aoti_torch_cpu_addmm_out: out buf0 | in arg1_1 | in arg2_1 | in arg0_1 = tmp_tensor_handle_0_raii | in scalar 1L | in scalar 1L
auto tmp_tensor_handle_0 = reinterpret_tensor_wrapper(arg0_1, 2, int_array_0, int_array_1, 0L);
RAIIAtenTensorHandle tmp_tensor_handle_0_raii(tmp_tensor_handle_0);
@before arg1_1, arg2_1, tmp_tensor_handle_0_raii
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, arg1_1, arg2_1, tmp_tensor_handle_0_raii, 1L, 1L));
@after buf0, arg1_1, arg2_1, tmp_tensor_handle_0_raii
== extern into a view | aoti
> extern_out aoti_torch_cpu_mm_out: out buf0 = buf0_as_strided | in arg0_1 | in arg1_1
auto buf0_as_strided = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L));
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0_as_strided, arg0_1, arg1_1));
@after buf0_as_strided, arg0_1, arg1_1
== extern with optional arguments | jit
> extern_out aoti_torch_cpu__scaled_mm_out: out buf0 | in arg0_1 | in arg1_1 | in w | in w | in other nullptr | in other nullptr | in scalar var_0 | in scalar 0
int32_t var_0 = cached_torch_dtype_float32;
@before arg0_1, arg1_1, w, var_0
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_mm_out(buf0, arg0_1, arg1_1, w, w, nullptr, nullptr, &var_0, 0));
@after buf0, arg0_1, arg1_1, w, var_0
== seeds | jit
> extern_out aoti_torch_cpu_randint_low_out: out buf0 | in scalar -9223372036854775808L | in scalar 9223372036854775807L | in other std::array<int64_t, 1>{5L} | in scalar 1
@before
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_randint_low_out(buf0, -9223372036854775808L, 9223372036854775807L, std::array<int64_t, 1>{5L}.cbegin(), 1));
@after buf0
== extern that returns | aoti
> extern_alloc aoti_torch_cpu_convolution: in arg0_1 | in arg1_1 | in arg2_1 | in other std::array<int64_t, 2>{1L, 1L} | in scalar 2 | in other std::array<int64_t, 2>{1L, 1L} | in scalar 2 | in scalar 0 | in scalar 1L | out buf2
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1, arg2_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_convolution(arg0_1, arg1_1, &temporary_reference(arg2_1.get()), std::array<int64_t, 2>{1L, 1L}.cbegin(), 2, std::array<int64_t, 2>{1L, 1L}.cbegin(), 2, 0, 1L, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, arg2_1, buf2
assert_size_stride(buf2, {4L, 4L}, {4L, 1L}, "torch.ops.aten.convolution.default");
== extern that returns, torch 2.6 | jit
> extern_alloc aoti_torch_cpu_convolution: in arg0_1 | in arg1_1 | in arg2_1 = var_3 | in scalar 1L | in scalar 1L | in scalar 2 | in scalar 0 | in scalar 1L | out buf2
AtenTensorHandle var_3 = arg2_1.get();
const int64_t var_array_0[] = {1L, 1L};
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1, var_3
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_convolution(arg0_1, arg1_1, &var_3, var_array_0, 2, 0, 1L, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, var_3, buf2
== fallback with two results and a number | jit
> fallback aoti_torch_cpu_sort_stable: in arg0_1 | in scalar var_0 | in scalar 1L | in scalar 0 | out buf5 | out buf6
int32_t var_0 = 1;
AtenTensorHandle buf5_handle;
AtenTensorHandle buf6_handle;
@before arg0_1, var_0
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort_stable(arg0_1, &var_0, 1L, 0, &buf5_handle, &buf6_handle));
RAIIAtenTensorHandle buf5(buf5_handle);
RAIIAtenTensorHandle buf6(buf6_handle);
@after arg0_1, var_0, buf5, buf6
arg0_1.reset();
== fallback, a result that nobody wants | aoti
> fallback aoti_torch_cuda_topk: in arg0_1 | in scalar 3L | in scalar -1L | in scalar 1 | in scalar 1 | in other nullptr | out buf5
AtenTensorHandle buf5_handle;
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_topk(arg0_1, 3L, -1L, 1, 1, &buf5_handle, nullptr));
RAIIAtenTensorHandle buf5(buf5_handle);
@after arg0_1, buf5
== fallback with a number for a result | aoti
> fallback aoti_torch_cuda__scaled_dot_product_flash_attention: in arg0_1 | in arg1_1 | in arg2_1 | in scalar 0.0 | in scalar 0 | in scalar buf5_2 | out buf5
AtenTensorHandle buf5_handle;
int64_t buf5_2 = 4;
@before arg0_1, arg1_1, arg2_1, buf5_2
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda__scaled_dot_product_flash_attention(arg0_1, arg1_1, arg2_1, 0.0, 0, &buf5_handle, &buf5_2));
RAIIAtenTensorHandle buf5(buf5_handle);
@after arg0_1, arg1_1, arg2_1, buf5_2, buf5
== fallback without arguments | jit
> fallback aoti_torch_cpu_randperm: in scalar 8L | in other var_2 | in other nullptr | in other var_3 | in scalar 0 | in other var_4 | out buf2
AtenTensorHandle buf2_handle;
@before
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_randperm(8L, &var_2, nullptr, &var_3, 0, &var_4, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after buf2
== fallback with a list of tensors | aoti
> fallback aoti_torch_cpu_cat: in arg0_1 | in arg1_1 | in scalar 2 | in scalar 0L | out buf2
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_cat(std::array<AtenTensorHandle, 2>{arg0_1.get(), arg1_1.get()}.cbegin(), 2, 0L, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, buf2
== fallback with a list of tensors, torch 2.15 | aoti
> fallback aoti_torch_cpu_cat: in arg0_1 | in arg1_1 | in scalar 2 | in scalar 0L | out buf2
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_cat(static_cast<const AtenTensorHandle*>(std::array<AtenTensorHandle, 2>{arg0_1.get(), arg1_1.get()}.data()), 2, 0L, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, buf2
== fallback with a list of optional tensors | jit
> fallback aoti_torch_cpu_index_Tensor: in arg0_1 | in other nullptr | in arg1_1 | in scalar 2 | out buf2
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_index_Tensor(arg0_1, std::array<const AtenTensorHandle*, 2>{nullptr, &temporary_reference(arg1_1.get())}.data(), 2, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, buf2
== fallback with lists, torch 2.6 | jit
> fallback aoti_torch_cpu_index_Tensor: in w | in arg1_1 = var_3 | in scalar 0 | in scalar 2 | in arg0_1 | in arg2_1 | in scalar 2 | out buf2
AtenTensorHandle var_3 = arg1_1.get();
const AtenTensorHandle* var_array_2[] = {&var_3, 0};
const AtenTensorHandle var_array_1[] = {arg0_1, arg2_1};
AtenTensorHandle buf2_handle;
@before w, var_3, arg0_1, arg2_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_index_Tensor(w, var_array_2, 2, var_array_1, 2, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after w, var_3, arg0_1, arg2_1, buf2
== mkldnn, no update in spite of its name | aoti
> fallback aoti_torch_cpu_mkldnn__convolution_pointwise: in arg0_1 | in w | in arg1_1 | in scalar 1L | in other "relu" | in other std::array<const double*, 1>{nullptr} | in scalar 1 | in other "" | out buf3
AtenTensorHandle buf3_handle;
@before arg0_1, w, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mkldnn__convolution_pointwise(arg0_1, w, &temporary_reference(arg1_1.get()), 1L, "relu", std::array<const double*, 1>{nullptr}.data(), 1, "", &buf3_handle));
RAIIAtenTensorHandle buf3(buf3_handle);
@after arg0_1, w, arg1_1, buf3
== mkldnn in place | aoti
> fallback aoti_torch_cpu_mkldnn__convolution_pointwise_binary_: inout arg0_1 | in arg1_1 | in w | in other nullptr | in other "add" | out buf3
AtenTensorHandle buf3_handle;
@before arg0_1, arg1_1, w
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(arg0_1, arg1_1, w, nullptr, "add", &buf3_handle));
RAIIAtenTensorHandle buf3(buf3_handle);
@after arg0_1, arg1_1, w, buf3
== in place without a result | jit
> fallback aoti_torch_cpu_resize_: inout arg0_1 | in other std::array<int64_t, 1>{4L} | in scalar 1 | in other nullptr
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_resize_(arg0_1, std::array<int64_t, 1>{4L}.cbegin(), 1, nullptr));
@after arg0_1
== scatter, unchecked | aoti
> fallback aoti_torch_cpu_scatter_reduce_two_out: inout arg0_1 | inout arg0_1 | in scalar 1 | in arg1_1 | in arg2_1 | in other "sum" | in scalar 1
@before arg0_1, arg1_1, arg2_1
aoti_torch_cpu_scatter_reduce_two_out(arg0_1, arg0_1,1,arg1_1,arg2_1, "sum",1);
@after arg0_1, arg1_1, arg2_1
== scatter, torch 2.15 | jit
> fallback aoti_torch_cpu_scatter_reduce_two_out: inout arg0_1 | inout arg0_1 | in scalar 1 | in arg1_1 | in arg2_1 | in other "sum" | in scalar 1
@before arg0_1, arg1_1, arg2_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_scatter_reduce_two_out(arg0_1,arg0_1,1,arg1_1,arg2_1, "sum",1));
@after arg0_1, arg1_1, arg2_1
== index_put, torch 2.6 | jit
> fallback aoti_torch_index_put_out: inout arg0_1 | inout arg0_1 | in arg1_1 | in scalar 1 | in arg2_1 | in scalar true
@before arg0_1, arg1_1, arg2_1
aoti_torch_index_put_out(arg0_1, arg0_1, std::vector<AtenTensorHandle>{arg1_1}.data(), 1, arg2_1, true);
@after arg0_1, arg1_1, arg2_1
== index_put | aoti
> fallback aoti_torch_index_put_out: inout arg0_1 | inout arg0_1 | in arg1_1 | in scalar 1 | in arg2_1 | in scalar 1
@before arg0_1, arg1_1, arg2_1
aoti_torch_index_put_out(arg0_1, arg0_1, std::array<AtenTensorHandle, 1>{arg1_1}.cbegin(), 1, arg2_1, 1);
@after arg0_1, arg1_1, arg2_1
== index_put, torch 2.15 | aoti
> fallback aoti_torch_index_put_out: inout arg0_1 | inout arg0_1 | in arg1_1 | in scalar 1 | in arg2_1 | in scalar 1
@before arg0_1, arg1_1, arg2_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_index_put_out(arg0_1, arg0_1, static_cast<const AtenTensorHandle*>(std::array<AtenTensorHandle, 1>{arg1_1}.data()), 1, arg2_1, 1));
@after arg0_1, arg1_1, arg2_1
== a launch without a device in its name | aoti
> extern_out aoti_torch__mm_plus_mm_out: out buf0 | in arg0_1 | in arg1_1 | in w
@before arg0_1, arg1_1, w
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__mm_plus_mm_out(buf0, arg0_1, arg1_1, w));
@after buf0, arg0_1, arg1_1, w
== random numbers in place | jit
> fallback aoti_torch_cpu_bernoulli__float: inout arg0_1 | in scalar 0.5 | in other NULL
> fallback aoti_torch_cpu_bernoulli__Tensor: inout arg0_1 | in arg1_1 | in other NULL
> fallback aoti_torch_cpu_bernoulli__float: out buf0 | in scalar 0.5 | in other NULL
@before arg0_1
aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL);
@after arg0_1
@before arg0_1, arg1_1
aoti_torch_cpu_bernoulli__Tensor(arg0_1, arg1_1, NULL);
@after arg0_1, arg1_1
@before
aoti_torch_cpu_bernoulli__float(buf0, 0.5, NULL);
@after buf0
== storage resized | aoti
> fallback aoti_torch_cuda_resize_storage_bytes_: inout arg0_1 | in scalar 1024
@before arg0_1
aoti_torch_cuda_resize_storage_bytes_(arg0_1, 1024);
@after arg0_1
== proxy executor | aoti
> custom_op torch.ops.corp.scale.default: in arg0_1 | out buf5 | in scalar 2.5 | in scalar 3
AtenTensorHandle buf5_handle;  // output buffer
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf5_handle));
RAIIAtenTensorHandle buf5(buf5_handle);
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 0, 1, std::array<int64_t, 1>{3}.data(), 2, std::array<AtenTensorHandle, 2>{arg0_1, buf5}.data()));
@after arg0_1, buf5
== proxy executor, torch 2.6 | aoti
> custom_op torch.ops.corp.scale.default: in arg0_1 | out buf5 | in scalar 2.5 | in scalar 3
AtenTensorHandle buf5_handle;  // output buffer
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf5_handle));
RAIIAtenTensorHandle buf5(buf5_handle);
@before arg0_1
aoti_torch_proxy_executor_call_function(proxy_executor, 0, 1, std::vector<int64_t>{3}.data(), 2, std::vector<AtenTensorHandle>{arg0_1, buf5}.data());
@after arg0_1, buf5
== proxy executor, an operator that mutates | aoti
> custom_op torch.ops.corp.inc_.default: inout arg0_1 | in arg1_1
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 1, 0, std::array<int64_t, 0>{}.data(), 2, std::array<AtenTensorHandle, 2>{arg0_1, arg1_1}.data()));
@after arg0_1, arg1_1
== proxy executor, arrayref mode | arrayref
> custom_op torch.ops.corp.scale.default: in arg0_1 | out buf5 | in scalar 2.5 | in scalar 3
AtenTensorHandle buf5_handle;  // output buffer
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf5_handle));
RAIIAtenTensorHandle buf5(buf5_handle);
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 0, 1, std::array<int64_t, 1>{3}.data(), 2, std::array<AtenTensorHandle, 2>{borrow_arrayref_tensor_as_tensor(arg0_1), borrow_arrayref_tensor_as_tensor(buf5)}.data()));
@after arg0_1, buf5
== proxy executor, a list that is mutated and returned | aoti
> collective torch.ops._c10d_functional.all_reduce_coalesced_.default: inout arg0_1 | inout arg1_1 | inout arg0_1 | inout arg1_1
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, 2, 0, std::array<int64_t, 0>{}.data(), 4, std::array<AtenTensorHandle, 4>{arg0_1, arg1_1, arg0_1, arg1_1}.data()));
@after arg0_1, arg1_1
== dispatcher, optional first in the block, mutated second | jit
> custom_op torch.ops.corp.inc_.default: inout arg0_1 | in arg1_1
@before arg0_1, arg1_1
{
    AtenTensorHandle tmp_var_0;
    aoti_torch_new_tensor_handle(arg1_1, &tmp_var_0);
    std::optional tmp_var_1{torch::stable::detail::from(tmp_var_0)};
    AtenTensorHandle tmp_var_2;
    aoti_torch_new_tensor_handle(arg0_1, &tmp_var_2);
    std::array<StableIValue, 2> dispatch_vars{torch::stable::detail::from(tmp_var_2), torch::stable::detail::from(tmp_var_1)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::inc_", "", dispatch_vars.data())
    );
}
@after arg0_1, arg1_1
== dispatcher, boxed, a list that is mutated | jit
> collective torch.ops._c10d_functional.all_reduce_coalesced_.default: inout arg0_1 | inout arg1_1 | in other std::string("sum")
@before arg0_1, arg1_1
{
    std::vector<c10::IValue> dispatch_stack_0;
    c10::impl::GenericList tmp_list_0(c10::TensorType::get());
    tmp_list_0.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(arg0_1)));
    tmp_list_0.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(arg1_1)));
    dispatch_stack_0.emplace_back(c10::IValue(std::move(tmp_list_0)));
    dispatch_stack_0.emplace_back(c10::IValue(std::string("sum")));
    static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::all_reduce_coalesced_", "");
    op.callBoxed(&dispatch_stack_0);
}
@after arg0_1, arg1_1
== proxy executor, a number beyond the file | aoti
> custom_op proxy_executor_call_7: inout arg0_1
@before arg0_1
aoti_torch_proxy_executor_call_function(proxy_executor, 7, 0, std::array<int64_t, 0>{}.data(), 1, std::array<AtenTensorHandle, 1>{arg0_1}.data());
@after arg0_1
== dispatcher | jit
> fallback torch.ops.aten.linalg_inv_ex.default: in arg0_1 | in scalar 0 | in arg1_1 | in other std::nullopt | out buf3 | out buf4
RAIIAtenTensorHandle buf3;
RAIIAtenTensorHandle buf4;
@before arg0_1, arg1_1
{
    AtenTensorHandle tmp_var_0;
    aoti_torch_new_tensor_handle(arg0_1, &tmp_var_0);
    AtenTensorHandle tmp_var_2;
    aoti_torch_new_tensor_handle(arg1_1, &tmp_var_2);
    std::optional tmp_var_1{torch::stable::detail::from(tmp_var_2)};
    std::array<StableIValue, 4> dispatch_vars{torch::stable::detail::from(tmp_var_0), torch::stable::detail::from(0), torch::stable::detail::from(tmp_var_1), torch::stable::detail::from(std::nullopt)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("aten::linalg_inv_ex", "", dispatch_vars.data())
    );
    buf3 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[0]);
    buf4 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[1]);
}
@after arg0_1, arg1_1, buf3, buf4
arg0_1.reset();
== dispatcher, torch 2.8 | jit
> custom_op torch.ops.corp.scale.default: in arg0_1 | in scalar 2.5 | out buf3
RAIIAtenTensorHandle buf3;
@before arg0_1
{
    AtenTensorHandle tmp_var_0;
    aoti_torch_new_tensor_handle(arg0_1, &tmp_var_0);
    std::array<StableIValue, 2> dispatch_vars{from(tmp_var_0), from(2.5)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::scale", "", dispatch_vars.data())
    );
    buf3 = to<AtenTensorHandle>(dispatch_vars[0]);
}
@after arg0_1, buf3
== dispatcher, an operator that mutates a view | jit
> custom_op torch.ops.corp.inc_.default: inout arg2_1 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg2_1, 2, int_array_0, int_array_1, 0L)) | in arg1_1
@before wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg2_1, 2, int_array_0, int_array_1, 0L)), arg1_1
{
    auto var_0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg2_1, 2, int_array_0, int_array_1, 0L));
    AtenTensorHandle tmp_var_0;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(arg1_1, &tmp_var_0));
    std::array<StableIValue, 2> dispatch_vars{torch::stable::detail::from(var_0.release()), torch::stable::detail::from(tmp_var_0)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::inc_", "", dispatch_vars.data())
    );
}
@after wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg2_1, 2, int_array_0, int_array_1, 0L)), arg1_1
arg2_1.reset();
== dispatcher, profiled, torch 2.15 | jit
> custom_op torch.ops.corp.inc_.default: inout arg0_1
@before arg0_1
{
    RAIIAtenRecordFunctionHandle record_corp_inc__default_("corp.inc_.default", nullptr);
    AtenTensorHandle tmp_var_0;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(arg0_1, &tmp_var_0));
    std::array<StableIValue, 1> dispatch_vars{torch::stable::detail::from(tmp_var_0)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::inc_", "", dispatch_vars.data())
    );
}
@after arg0_1
== dispatcher, boxed | jit
> custom_op torch.ops.corp.opt.default: in arg0_1 | in other c10::IValue() | in arg1_1 | in arg2_1 | in other std::string("hi") | in scalar 1.5 | in other at::kFloat | out buf10
RAIIAtenTensorHandle buf10;
@before arg0_1, arg1_1, arg2_1
{
    std::vector<c10::IValue> dispatch_stack_0;
    dispatch_stack_0.reserve(7);
    dispatch_stack_0.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(arg0_1)));
    dispatch_stack_0.emplace_back(c10::IValue());
    c10::impl::GenericList tmp_list_1(c10::TensorType::get());
    tmp_list_1.reserve(2);
    tmp_list_1.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(arg1_1)));
    tmp_list_1.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(arg2_1)));
    dispatch_stack_0.emplace_back(c10::IValue(std::move(tmp_list_1)));
    dispatch_stack_0.emplace_back(c10::IValue(std::string("hi")));
    dispatch_stack_0.emplace_back(c10::IValue(static_cast<double>(1.5)));
    dispatch_stack_0.emplace_back(c10::IValue(at::kFloat));
    static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("corp::opt", "");
    op.callBoxed(&dispatch_stack_0);
    buf10 = torch::aot_inductor::new_tensor_handle(std::move(dispatch_stack_0[0]).toTensor());
}
@after arg0_1, arg1_1, arg2_1, buf10
== Python | jit
> custom_op torch.ops.corp.splitl.default: in arg0_1 | in scalar 4 | in scalar s0 | in other Py_None | out buf7 | out buf8
RAIIPyObject custom_op_wrapper;
{
    py::gil_scoped_acquire_simple acquire;

    RAIIPyObject codecache_module(PyImport_ImportModule("torch._inductor.codecache"));
    if (!codecache_module) {
        throw std::runtime_error("Failed to load torch._inductor.codecache");
    }
    custom_op_wrapper = PyObject_GetAttrString(codecache_module, "custom_op_wrapper");
    if (!custom_op_wrapper) {
        throw std::runtime_error("Failed to load torch._inductor.codecache.custom_op_wrapper");
    }
}
RAIIAtenTensorHandle buf7;
RAIIAtenTensorHandle buf8;
@before arg0_1, s0
{
    py::gil_scoped_acquire_simple acquire;

    RAIIPyObject py_args_0(PyTuple_New(4));
    if (!py_args_0) {
        throw std::runtime_error("PyTuple_New py_args_0 failed");
    }
    PyTuple_SetItem(py_args_0, 0, PyUnicode_FromString("torch.ops.corp.splitl.default"));
    PyTuple_SetItem(py_args_0, 1, PyCapsule_New(reinterpret_cast<void*>(arg0_1.get()), NULL, NULL));
    PyObject* py_args_0_2 = PyList_New(2);
    PyList_SetItem(py_args_0_2, 0, PyLong_FromLongLong(4));
    PyList_SetItem(py_args_0_2, 1, PyLong_FromLongLong(s0));
    PyTuple_SetItem(py_args_0, 2, py_args_0_2);
    Py_INCREF(Py_None);
    PyTuple_SetItem(py_args_0, 3, Py_None);

    // Call the custom op in Python
    RAIIPyObject py_buf6(PyObject_CallObject(custom_op_wrapper, py_args_0));
    if (!py_buf6) {
        if (PyErr_Occurred()) {
            return;
        }
        throw std::runtime_error("PyObject_CallObject torch.ops.corp.splitl.default failed");
    }
    buf7 = reinterpret_cast<AtenTensorHandle>(PyCapsule_GetPointer(PyList_GET_ITEM(py_buf6.get(), 0), NULL));
    buf8 = reinterpret_cast<AtenTensorHandle>(PyCapsule_GetPointer(PyList_GET_ITEM(py_buf6.get(), 1), NULL));

}
@after arg0_1, s0, buf7, buf8
arg0_1.reset();
== Python, torch 2.6 | jit
> custom_op torch.ops.corp.scale.default: in arg0_1 | out buf2
RAIIAtenTensorHandle buf2;
@before arg0_1
{
py::gil_scoped_acquire acquire;

RAIIPyObject py_args_0(PyTuple_New(2));
if (py_args_0.get() == NULL) {
    throw std::runtime_error("PyTuple_New py_args_0 failed");
}
PyTuple_SetItem(py_args_0, 0, PyUnicode_FromString("torch.ops.corp.scale.default"));
PyTuple_SetItem(py_args_0, 1, PyCapsule_New(reinterpret_cast<void*>(arg0_1.get()), NULL, NULL));
// Call the custom op in Python
RAIIPyObject py_buf2(PyObject_CallObject(custom_op_wrapper, py_args_0));
if (py_buf2.get() == NULL) {
    throw std::runtime_error("PyObject_CallObject torch.ops.corp.scale.default failed");
}
buf2 =
reinterpret_cast<AtenTensorHandle>(PyCapsule_GetPointer(py_buf2.get(), NULL));
}
@after arg0_1, buf2
== collectives: the handle that they return is deleted | aoti
> collective aoti_torch_cpu__c10d_functional_all_reduce_: inout arg0_1 | in other "sum" | in other "0"
> collective aoti_torch_cpu__c10d_functional_wait_tensor: in arg0_1
AtenTensorHandle buf1_handle;
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__c10d_functional_all_reduce_(arg0_1, "sum", "0", &buf1_handle));
@after arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_delete_tensor_object(buf1_handle));
AtenTensorHandle buf19_handle;
@before arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__c10d_functional_wait_tensor(arg0_1, &buf19_handle));
@after arg0_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_delete_tensor_object(buf19_handle));
"""


# --- What names hold -------------------------------------------------------------------------------

FLOW = r"""
== taken over | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_inplace_2: inout buf2 @ buf0 | in arg1_1
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
auto buf2 = std::move(buf0);  // reuse
@before buf2, arg1_1
cpp_fused_inplace_2((float*)(buf2.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf2, arg1_1
== taken over to be filled anew | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_relu_0: in arg1_1 | out buf2 @ buf0
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
auto buf2 = std::move(buf0);  // reuse
@before arg1_1
cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf2.data_ptr()));
@after arg1_1, buf2
== taken over in another shape: two statements on a line | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_relu_0: in arg1_1 | out buf22 @ buf0
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
auto buf22 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L)); buf0.reset();  // reuse
@before arg1_1
cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf22.data_ptr()));
@after arg1_1, buf22
== taken over through a second handle | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_inplace_2: inout buf6 @ buf0 | in arg1_1
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
AtenTensorHandle tmp_buf0_1;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(buf0, &tmp_buf0_1));
auto buf6 = RAIIAtenTensorHandle(tmp_buf0_1); buf0.reset();  // reuse
@before buf6, arg1_1
cpp_fused_inplace_2((float*)(buf6.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf6, arg1_1
== taken over, torch 2.6: decltype(auto) is a reference | jit
> cpp cpp_fused_relu_0: in arg0_1 | out buf3 @ buf0
auto tmp_tensor_handle_0 = reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L);
RAIIAtenTensorHandle tmp_tensor_handle_0_raii(tmp_tensor_handle_0);
decltype(auto) buf3 = std::move(tmp_tensor_handle_0_raii); buf0.reset();  // reuse
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf3.data_ptr()));
@after arg0_1, buf3
buf3.reset();
== parts of a concatenation | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf2 @ buf1
> cpp cpp_fused_relu_0: in arg1_1 | out buf3 @ buf1
> cpp cpp_fused_relu_0: in buf1 | out buf0
auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf1, 2, int_array_0, int_array_1, 0L));  // alias
auto buf3 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf1, 2, int_array_0, int_array_1, 16L));  // alias
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf2.data_ptr()));
@after arg0_1, buf2
@before arg1_1
cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf3.data_ptr()));
@after arg1_1, buf3
@before buf1
cpp_fused_relu_0((const float*)(buf1.data_ptr()), (float*)(buf0.data_ptr()));
@after buf1, buf0
== parts of a concatenation, torch 2.6 | jit
> cpp cpp_fused_relu_0: in arg0_1 | out buf2 @ buf1
auto tmp_tensor_handle_0 = reinterpret_tensor_wrapper(buf1, 2, int_array_0, int_array_1, 0L);
RAIIAtenTensorHandle tmp_tensor_handle_0_raii(tmp_tensor_handle_0);
decltype(auto) buf2 = std::move(tmp_tensor_handle_0_raii);  // alias
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf2.data_ptr()));
@after arg0_1, buf2
== a concatenation and its consumer in one kernel | aoti
> cpp cpp_fused_cat_4: in arg0_1 | out buf1 | out buf2 @ buf1 | out buf0
auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf1, 2, int_array_0, int_array_1, 0L));  // alias
@before arg0_1
cpp_fused_cat_4((const float*)(arg0_1.data_ptr()), (const float*)(buf1.data_ptr()), (float*)(buf2.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf1, buf2, buf0
== pools | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf14
> cpp cpp_fused_relu_0: in arg1_1 | out buf0
AtenTensorHandle pool2_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &pool2_handle));
RAIIAtenTensorHandle pool2(pool2_handle);
AtenTensorHandle tmp_tensor_handle_3;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__alloc_from_pool(pool2, 0, cached_torch_dtype_float32, 2, int_array_0, int_array_1, &tmp_tensor_handle_3));
auto buf14 = RAIIAtenTensorHandle(tmp_tensor_handle_3);
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf14.data_ptr()));
@after arg0_1, buf14
pool2.reset(); buf14.reset(); arg0_1.reset();
@before arg1_1
cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg1_1, buf0
== a padded allocation | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf9
AtenTensorHandle buf9_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &buf9_handle));
AtenTensorHandle buf9_handle_restrided;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_as_strided(buf9_handle, int_array_0, int_array_1, &buf9_handle_restrided));
wrap_with_raii_handle_if_needed(buf9_handle);
RAIIAtenTensorHandle buf9(buf9_handle_restrided);
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf9.data_ptr()));
@after arg0_1, buf9
== a view of another type: its handle is used once | aoti
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 = tmp_arg0_1_0 later gone | in arg1_1
AtenTensorHandle tmp_arg0_1_0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(arg0_1, cached_torch_dtype_int32, &tmp_arg0_1_0));
@before tmp_arg0_1_0, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, RAIIAtenTensorHandle(tmp_arg0_1_0), arg1_1));
@after buf0, arg1_1
== a handle that is used once, on two launches | aoti
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 = tmp_arg0_1_0 later gone | in arg1_1
> extern_out aoti_torch_cpu_mm_out: out buf1 | in arg0_1 = tmp_arg0_1_1 later gone | in buf0
AtenTensorHandle tmp_arg0_1_0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(arg0_1, cached_torch_dtype_int32, &tmp_arg0_1_0));
AtenTensorHandle tmp_arg0_1_1;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(arg0_1, cached_torch_dtype_int32, &tmp_arg0_1_1));
@before tmp_arg0_1_0, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, RAIIAtenTensorHandle(tmp_arg0_1_0), arg1_1));
@after buf0, arg1_1
@before tmp_arg0_1_1, buf0
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf1, RAIIAtenTensorHandle(tmp_arg0_1_1), buf0));
@after buf1, buf0
== a handle that is used once can be made again | jit
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 = tmp_tensor_handle_0 later wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_0, int_array_1, 0L)) | in arg1_1
auto tmp_tensor_handle_0 = reinterpret_tensor_wrapper(arg0_1, 2, int_array_0, int_array_1, 0L);
@before tmp_tensor_handle_0, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, RAIIAtenTensorHandle(tmp_tensor_handle_0), arg1_1));
@after buf0, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, int_array_0, int_array_1, 0L)), arg1_1
== a view of another type, torch 2.6 | jit
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 = tmp_arg0_1_0_handle | in arg1_1
AtenTensorHandle tmp_arg0_1_0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(arg0_1, cached_torch_dtype_int32, &tmp_arg0_1_0));
RAIIAtenTensorHandle tmp_arg0_1_0_handle(tmp_arg0_1_0);
@before tmp_arg0_1_0_handle, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, tmp_arg0_1_0_handle, arg1_1));
@after buf0, tmp_arg0_1_0_handle, arg1_1
== a pointer into a handle that is used once | jit
> cpp cpp_fused_relu_0: in arg0_1 = tmp_arg0_1_0 later gone | out buf0
AtenTensorHandle tmp_arg0_1_0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(arg0_1, cached_torch_dtype_int32, &tmp_arg0_1_0));
@before tmp_arg0_1_0
cpp_fused_relu_0((const float*)(RAIIAtenTensorHandle(tmp_arg0_1_0).data_ptr()), (float*)(buf0.data_ptr()));
@after buf0
== written with part of it, then with all | aoti
> extern_out aoti_torch_cpu_mm_out: out buf0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L)) | in arg0_1 | in arg1_1
> extern_out aoti_torch_cpu_mm_out: out buf0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 16L)) | in arg0_1 | in arg1_1
> extern_out aoti_torch_cpu_mm_out: out buf1 | in buf0 | in buf0
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L)), arg0_1, arg1_1));
@after wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 0L)), arg0_1, arg1_1
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 16L)), arg0_1, arg1_1));
@after wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_0, int_array_1, 16L)), arg0_1, arg1_1
@before buf0
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf1, buf0, buf0));
@after buf1, buf0
== an undefined tensor stands for none | aoti
> fallback aoti_torch_cpu__embedding_bag: in arg0_1 | in arg1_1 | in other var_5 | in scalar 0 | out buf2
AtenTensorHandle var_5_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&var_5_handle));
RAIIAtenTensorHandle var_5(var_5_handle);
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__embedding_bag(arg0_1, arg1_1, var_5, 0, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, buf2
== a number as a tensor | jit
> fallback aoti_torch_cpu_mul_Tensor: in arg0_1 | in scalar_to_tensor_0 | out buf2
RAIIAtenTensorHandle scalar_to_tensor_0 = scalar_to_tensor_handle(2L*s0);
AtenTensorHandle buf2_handle;
@before arg0_1, scalar_to_tensor_0
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mul_Tensor(arg0_1, scalar_to_tensor_0, &buf2_handle));
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, scalar_to_tensor_0, buf2
== copied into: no launch, but a value | aoti
> cpp cpp_fused_inplace_2: inout buf0 | in arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(buf0, arg0_1, 0));
@before buf0, arg1_1
cpp_fused_inplace_2((float*)(buf0.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf0, arg1_1
== a workspace is zeroed, which gives it a value | aoti
> cpp cpp_fused_inplace_2: inout buf0 | in arg1_1
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(buf0.get()));
@before buf0, arg1_1
cpp_fused_inplace_2((float*)(buf0.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf0, arg1_1
== a symbol out of a tensor | aoti
> cpp cpp_fused_add_1: out buf0 | in arg0_1 | in scalar u0 | in scalar u1 = c10::div_floor_integer(static_cast<int64_t>(u1), static_cast<int64_t>(2L))
int64_t u0_raw;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_int64(arg1_1, &u0_raw));
auto u0 = u0_raw;
auto u1 = arg0_1.size(0);
@before arg0_1, u0, c10::div_floor_integer(static_cast<int64_t>(u1), static_cast<int64_t>(2L))
cpp_fused_add_1((float*)(buf0.data_ptr()), (const float*)(arg0_1.data_ptr()), u0, c10::div_floor_integer(static_cast<int64_t>(u1), static_cast<int64_t>(2L)));
@after buf0, arg0_1, u0, c10::div_floor_integer(static_cast<int64_t>(u1), static_cast<int64_t>(2L))
== a block gets what was taken over, not what is gone | jit
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_relu_0: in arg0_1 | out buf2 @ buf0
> custom_op torch.ops.corp.inc_.default: inout buf2 @ buf0
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
auto buf2 = std::move(buf0);  // reuse
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf2.data_ptr()));
@after arg0_1, buf2
@before buf2
{
    AtenTensorHandle tmp_var_0;
    aoti_torch_new_tensor_handle(buf2, &tmp_var_0);
    std::array<StableIValue, 1> dispatch_vars{torch::stable::detail::from(tmp_var_0)};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::inc_", "", dispatch_vars.data())
    );
}
@after buf2
== a block makes a view of its own | jit
> custom_op torch.ops.corp.scale.default: in arg0_1 | out buf3
RAIIAtenTensorHandle buf3;
@before arg0_1
{
    static constexpr int64_t int_array_9[] = {4L, };
    auto var_0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 1, int_array_9, int_array_9, 0L));
    std::array<StableIValue, 1> dispatch_vars{torch::stable::detail::from(var_0.release())};
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_call_dispatcher("corp::scale", "", dispatch_vars.data())
    );
    buf3 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[0]);
}
@after arg0_1, buf3
== upstream's own printer | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
aoti_torch_print_tensor_handle(arg0_1, "before_launch - cpp_fused_relu_0 - arg0_1");
printf("[  before_launch - cpp_fused_relu_0 - s0: %ld  ]", s0); printf("\n");
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
aoti_torch_print_tensor_handle(buf0, "after_launch - cpp_fused_relu_0 - buf0");
"""


# --- Blocks, branches, loops -----------------------------------------------------------------------

BLOCKS = r"""
== profiled | aoti
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
@before arg0_1
{
KernelContextGuard _ctx("cpp_fused_relu_0", R"(
File "gen.py", line 138, in forward
    return "}" if self.a(x).relu() else call_triton_poi_fused_relu_0(arg1_1, buf1);  // { it's
    aoti_torch_cpu_mm_out(buf1, arg0_1, arg1_1); }}}} "
)");
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
}
@after arg0_1, buf0
== profiled, extern that returns | aoti
> extern_alloc aoti_torch_cpu_convolution: in arg0_1 | in arg1_1 | in other nullptr | out buf2
AtenTensorHandle buf2_handle;
@before arg0_1, arg1_1
{
KernelContextGuard _ctx("aoti_torch_cpu_convolution", R"(
    return F.conv2d(x, w)
)");
RAIIAtenRecordFunctionHandle record_aoti_torch_cpu_convolution_("aoti_torch_cpu_convolution", nullptr);
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_convolution(arg0_1, arg1_1, nullptr, &buf2_handle));
}
RAIIAtenTensorHandle buf2(buf2_handle);
@after arg0_1, arg1_1, buf2
== profiled, torch 2.8 | jit
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 | in arg1_1
@before arg0_1, arg1_1
{
RECORD_FUNCTION("aoti_torch_cpu_mm_out", c10::ArrayRef<c10::IValue>());
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1));
}
@after buf0, arg0_1, arg1_1
== profiled, torch 2.15 | aoti
> extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 | in arg1_1
@before arg0_1, arg1_1
{
C10IValueHandle tmp_aoti_torch_cpu_mm_out_input_0 = nullptr;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_tensor_to_ivalue(arg0_1, &tmp_aoti_torch_cpu_mm_out_input_0));
RAIIC10IValueHandle RAII_tmp_aoti_torch_cpu_mm_out_input_0(tmp_aoti_torch_cpu_mm_out_input_0);
std::vector<C10IValueHandle> aoti_torch_cpu_mm_out_inputs_({RAII_tmp_aoti_torch_cpu_mm_out_input_0});
RAIIAtenRecordFunctionHandle record_aoti_torch_cpu_mm_out_("aoti_torch_cpu_mm_out", nullptr, aoti_torch_cpu_mm_out_inputs_);
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1));
}
@after buf0, arg0_1, arg1_1
== profiled, a Triton launch with its stream | jit
> triton triton_poi_fused_relu_0: in arg0_1 | out buf0 | in other triton_poi_fused_relu_0_xnumel | in other 0 | in other stream0
@before arg0_1
{
KernelContextGuard _ctx("triton_poi_fused_relu_0", R"()");
cudaStream_t stream0;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(0, (void**)&stream0));
int64_t triton_poi_fused_relu_0_xnumel = 2L*s0;
call_triton_poi_fused_relu_0(arg0_1, buf0, triton_poi_fused_relu_0_xnumel, 0, stream0);
}
@after arg0_1, buf0
== two launches in a block | jit
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_relu_0: in arg1_1 | out buf1
{
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    @after arg0_1, buf0
    @before arg1_1
    cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf1.data_ptr()));
    @after arg1_1, buf1
}
== a conditional | aoti
> true_graph_0: extern_out aoti_torch_cpu_mm_out: out true_graph_0_buf0 | in true_graph_0_arg0_1 @ arg0_1 | in arg1_1
> false_graph_0: cpp cpp_fused_relu_0: in arg0_1 | out false_graph_0_buf0
> cpp cpp_fused_relu_0: in buf2 | out buf0
bool arg2_1_scalar;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(arg2_1, &arg2_1_scalar));
RAIIAtenTensorHandle buf2;
if (arg2_1_scalar) {
    // subgraph: true_graph_0
    AtenTensorHandle true_graph_0_arg0_1_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(arg0_1, &true_graph_0_arg0_1_handle));
    RAIIAtenTensorHandle true_graph_0_arg0_1(true_graph_0_arg0_1_handle);
    AtenTensorHandle true_graph_0_buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &true_graph_0_buf0_handle));
    RAIIAtenTensorHandle true_graph_0_buf0(true_graph_0_buf0_handle);
    // Unsorted Source Nodes: [cond, matmul], Original ATen: [aten.mm]
    @before true_graph_0_arg0_1, arg1_1
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(true_graph_0_buf0, true_graph_0_arg0_1, arg1_1));
    @after true_graph_0_buf0, true_graph_0_arg0_1, arg1_1
    true_graph_0_arg0_1.reset();
    buf2.reset();
    buf2 = std::move(true_graph_0_buf0);
} else {
    // subgraph: false_graph_0
    AtenTensorHandle false_graph_0_buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu, 0, &false_graph_0_buf0_handle));
    RAIIAtenTensorHandle false_graph_0_buf0(false_graph_0_buf0_handle);
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(false_graph_0_buf0.data_ptr()));
    @after arg0_1, false_graph_0_buf0
    buf2.reset();
    buf2 = std::move(false_graph_0_buf0);
}
@before buf2
cpp_fused_relu_0((const float*)(buf2.data_ptr()), (float*)(buf0.data_ptr()));
@after buf2, buf0
== a conditional whose one branch is a block | jit
> true_graph_1: custom_op torch.ops.corp.scale.default: in true_graph_1_arg0_1 @ arg0_1 | out true_graph_1_buf1
RAIIAtenTensorHandle buf6;
if (s0 > 3L) {
    // subgraph: true_graph_1
    AtenTensorHandle true_graph_1_arg0_1_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(arg0_1, &true_graph_1_arg0_1_handle));
    RAIIAtenTensorHandle true_graph_1_arg0_1(true_graph_1_arg0_1_handle);
    RAIIAtenTensorHandle true_graph_1_buf1;
    @before true_graph_1_arg0_1
    {
        AtenTensorHandle tmp_var_0;
        aoti_torch_new_tensor_handle(true_graph_1_arg0_1, &tmp_var_0);
        std::array<StableIValue, 1> dispatch_vars{torch::stable::detail::from(tmp_var_0)};
        AOTI_TORCH_ERROR_CODE_CHECK(
            aoti_torch_call_dispatcher("corp::scale", "", dispatch_vars.data())
        );
        true_graph_1_buf1 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[0]);
    }
    @after true_graph_1_arg0_1, true_graph_1_buf1
    buf6.reset();
    buf6 = std::move(true_graph_1_buf1);
}
== a conditional, torch 2.15 | aoti
> false_graph_0: cpp cpp_fused_relu_0: in arg0_1 | out buf0
> middle_graph_0: cpp cpp_fused_relu_0: in arg0_1 | out buf0
> true_graph_0: extern_out aoti_torch_cpu_mm_out: out buf0 | in arg0_1 | in arg1_1
> cpp cpp_fused_inplace_2: inout buf0 | in arg1_1
int64_t buf1_scalar;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_int64(arg2_1, &buf1_scalar));
if (buf1_scalar == 0) {
    // subgraph: false_graph_0
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    @after arg0_1, buf0
} else if (buf1_scalar == 1) {
    // subgraph: middle_graph_0
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    @after arg0_1, buf0
} else {
    // subgraph: true_graph_0
    @before arg0_1, arg1_1
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1));
    @after buf0, arg0_1, arg1_1
}
@before buf0, arg1_1
cpp_fused_inplace_2((float*)(buf0.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf0, arg1_1
== a loop: two subgraphs in one block | aoti
> while_loop_cond_graph_0*: cpp cpp_fused_relu_0: in arg0_1 | out while_loop_cond_graph_0_buf0
> while_loop_body_graph_0*: cpp cpp_fused_inplace_2: inout arg0_1 | in arg1_1
> cpp cpp_fused_relu_0: in arg0_1 | out buf0
while (1) {
    // subgraph: while_loop_cond_graph_0
    AtenTensorHandle while_loop_cond_graph_0_buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(0, int_array_0, int_array_1, cached_torch_dtype_bool, cached_torch_device_type_cpu, 0, &while_loop_cond_graph_0_buf0_handle));
    RAIIAtenTensorHandle while_loop_cond_graph_0_buf0(while_loop_cond_graph_0_buf0_handle);
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(while_loop_cond_graph_0_buf0.data_ptr()));
    @after arg0_1, while_loop_cond_graph_0_buf0
    bool buf2_cond_result_scalar;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(while_loop_cond_graph_0_buf0, &buf2_cond_result_scalar));
    if (!buf2_cond_result_scalar) break;
    // subgraph: while_loop_body_graph_0
    @before arg0_1, arg1_1
    cpp_fused_inplace_2((float*)(arg0_1.data_ptr()), (const float*)(arg1_1.data_ptr()));
    @after arg0_1, arg1_1
}
@before arg0_1
cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
@after arg0_1, buf0
== a conditional in a loop | jit
> true_graph_0*: cpp cpp_fused_relu_0: in arg0_1 | out buf0
> false_graph_0*: cpp cpp_fused_relu_0: in arg1_1 | out buf0
> while_loop_body_graph_0*: cpp cpp_fused_inplace_2: inout buf0 | in arg1_1
> cpp cpp_fused_inplace_2: inout buf0 | in arg1_1
while (1) {
    // subgraph: while_loop_cond_graph_0
    if (!buf2_cond_result) break;
    // subgraph: while_loop_body_graph_0
    if (arg2_1_scalar) {
        // subgraph: true_graph_0
        @before arg0_1
        cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
        @after arg0_1, buf0
    } else {
        // subgraph: false_graph_0
        @before arg1_1
        cpp_fused_relu_0((const float*)(arg1_1.data_ptr()), (float*)(buf0.data_ptr()));
        @after arg1_1, buf0
    }
    @before buf0, arg1_1
    cpp_fused_inplace_2((float*)(buf0.data_ptr()), (const float*)(arg1_1.data_ptr()));
    @after buf0, arg1_1
}
@before buf0, arg1_1
cpp_fused_inplace_2((float*)(buf0.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf0, arg1_1
== a subgraph that is called once, torch 2.15 | jit
> repeated_subgraph0: cpp cpp_fused_relu_0: in arg0_1 | out buf0
> cpp cpp_fused_inplace_2: inout buf3 | in arg1_1
RAIIAtenTensorHandle buf3;
{
    // subgraph: repeated_subgraph0
    @before arg0_1
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    @after arg0_1, buf0
    buf3.reset();
    buf3 = std::move(buf0);
}
@before buf3, arg1_1
cpp_fused_inplace_2((float*)(buf3.data_ptr()), (const float*)(arg1_1.data_ptr()));
@after buf3, arg1_1
== a subgraph's input in arrayref mode | arrayref
> true_graph_0: cpp cpp_fused_relu_0: in true_graph_0_arg0_1 @ arg0_1 | out buf0
{
    // subgraph: true_graph_0
    AtenTensorHandle true_graph_0_arg0_1_handle;
    [&](auto&& _t) { if constexpr (std::is_same_v<std::decay_t<decltype(_t)>, ArrayRefTensor<float>>) { AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(borrow_arrayref_tensor_as_tensor(_t), &true_graph_0_arg0_1_handle)); } else { AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(_t, &true_graph_0_arg0_1_handle)); } }(arg0_1);
    RAIIAtenTensorHandle true_graph_0_arg0_1(true_graph_0_arg0_1_handle);
    auto* var_0 = get_data_ptr_wrapper(true_graph_0_arg0_1);
    auto* var_1 = get_data_ptr_wrapper(buf0);
    @before true_graph_0_arg0_1
    cpp_fused_relu_0((const float*)(var_0), (float*)(var_1));
    @after true_graph_0_arg0_1, buf0
}
"""


def rows(table: str) -> pytest.MarkDecorator:
    """`(frame, launches, body)` of each row of a table."""
    found = []
    for row in table.strip("\n").removeprefix("== ").split("\n== "):
        head, _, text = row.partition("\n")
        name, _, frame = head.rpartition(" | ")
        lines = text.split("\n")
        launches = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
        body = "\n".join(line for line in lines if not line.startswith("> "))
        found.append(pytest.param(frame, launches, body, id=name))
    return pytest.mark.parametrize(("frame", "launches", "body"), found)


def check(frame: str, launches: list[str], body: str) -> None:
    artifact = framed(frame, body)
    assert artifact.unrecognised == ()
    assert [shown(launch) for launch in artifact.launches] == launches
    assert probed(artifact) == body


@rows(LAUNCHES)
def test_launch(frame: str, launches: list[str], body: str) -> None:
    check(frame, launches, body)


@rows(FLOW)
def test_data_flow(frame: str, launches: list[str], body: str) -> None:
    check(frame, launches, body)


@rows(BLOCKS)
def test_scopes(frame: str, launches: list[str], body: str) -> None:
    check(frame, launches, body)


# --- The two traps ------------------------------------------------------------------------------


@rows(LAUNCHES + FLOW.lstrip("\n") + BLOCKS.lstrip("\n"))
def test_a_handle_that_is_used_once_is_not_used_again(
    frame: str, launches: list[str], body: str
) -> None:
    """Whoever gets `RAIIAtenTensorHandle(tmp)` deletes it: a second one would delete it again."""
    for line in probed(framed(frame, body)).split("\n"):
        if _MARK.match(line):
            assert not re.search(r"RAIIAtenTensorHandle\(|\.release\(|std::move\(", line)
    gone = set(re.findall(r"RAIIAtenTensorHandle\((tmp_\w+)\)", body))
    for name in gone:
        _, _, behind = probed(framed(frame, body)).partition(f"RAIIAtenTensorHandle({name})")
        assert name not in behind


@rows(LAUNCHES + FLOW.lstrip("\n") + BLOCKS.lstrip("\n"))
def test_a_result_is_read_where_it_exists(frame: str, launches: list[str], body: str) -> None:
    """What is declared behind a launch, or null before it, is not read before it; nor its handle."""
    lines = probed(framed(frame, body)).split("\n")
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
    assert probed(artifact).split("\n")[1:] == ["@before arg0_1", RELU, "@after arg0_1, buf0"]
    (inner,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(result.source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cpp_wrapper_src"
    )
    # What the compiler will see is what a raw string would have held.
    raw = rewriter.instrument(framed("jit", RELU), rewriter.select("print,save", when="both"))
    runtime = re.search(rb"What the probes need.*?\n(.*)\n// What is known", raw.source, re.DOTALL)
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
        (OPERATORS, "custom_op torch.ops.corp.inc_.default: inout arg0_1 | in arg1_1"),
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
    for broken in ("", "{", "[]", '{"nodes": 3}', '{"other": []}', "\udcff\udcfe"):
        beside.write_bytes(broken.encode("utf-8", "surrogateescape"))
        with pytest.raises(RewriterError) as caught:
            _ = rewriter.open(path).launches
        assert caught.value.slug == "bad-operators-file"
        assert str(beside) in caught.value.message
    # Nodes that are no objects are nodes of which nothing is known.
    beside.write_text('{"nodes": [1, "x"]}')
    assert rewriter.open(path).launches[0].kernel == "proxy_executor_call_1"
