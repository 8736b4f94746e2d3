"""Wrappers of a single statement, and what is located in them."""

from __future__ import annotations

from rewriter.core.source import Source
from rewriter.locate.cpp.locate import locate as locate_cpp
from rewriter.locate.python.locate import locate as locate_python
from rewriter.locate.types import Located

_TRITON = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
{head}
@triton.jit
def kernel(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tl.store(out_ptr0, tl.load(in_ptr0))
"""
_META = "triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'}}"


def _triton(name: str, head: str) -> str:
    source = _TRITON.format(head=head)
    return f"{name} = async_compile.triton('{name}', '''{source}''', device_str='cuda')"


# What makes each kernel that the examples name; a name that is not here is one that the file does
# not define.
DEFINITIONS = {
    "helion_add_0": "\ndef helion_add_0(x, y):\n    return x + y\n",
    "triton_poi_fused_0": _triton("triton_poi_fused_0", f"@triton_heuristics.pointwise({_META})"),
    "triton_for_fused_0": _triton(
        "triton_for_fused_0",
        f"@triton_heuristics.foreach({_META}, inductor_meta={{'grid_type': 'ComboKernelGrid'}})",
    ),
    "triton_tem_fused_mm_0": _triton(
        "triton_tem_fused_mm_0", f"@triton_heuristics.template({_META}, num_stages=3)"
    ),
    "add_k_0": _triton("add_k_0", f"@triton_heuristics.user_autotune({_META}, custom_kernel=True)"),
    "multi_kernel_0": (
        "multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_0])"
    ),
    "cpp_fused_add_0": (
        "cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''\n"
        "extern \"C\" void kernel(const float* in_ptr0, float* out_ptr0)\n{}\n''')"
    ),
    "cuda_fused_0": (
        "cuda_fused_0 = async_compile.cuda(r'''int cuda_fused_0(void* X, void* Y)''', 'so')"
    ),
    "cutedsl_0": "cutedsl_0 = async_compile.cutedsl('cutedsl_0', r'''import cutlass''')",
}


ENTRY = """\
#include <torch/csrc/inductor/aoti_include/cpu.h>
namespace torch::aot_inductor {
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 2);
    auto arg0_1 = std::move(inputs[0]);
    auto buf0 = std::move(inputs[1]);
    %s
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""


def python(statement: str) -> Located:
    """The locator's answer for a wrapper whose call runs `statement` alone."""
    made = [text for name, text in DEFINITIONS.items() if name in statement]
    if "multi_kernel_0" in statement:
        made.insert(0, DEFINITIONS["triton_poi_fused_0"])
    text = "\n".join(
        [
            "from torch._inductor.async_compile import AsyncCompile",
            "async_compile = AsyncCompile()",
            *made,
            "def call(args):",
            "    arg0_1, arg1_1 = args",
            f"    {statement}",
            "    return (buf0,)",
            "",
        ]
    )
    return locate_python(Source("output_code.py", text.encode()))


def cpp(statement: str) -> Located:
    """The locator's answer for a wrapper whose entry runs `statement` alone."""
    return locate_cpp(Source("wrapper.cpp", (ENTRY % statement).encode()))
