"""Every form that a launch takes in a Python wrapper, and what looks like one and is none.

Each row is the body of a call. What the locator finds is written the way `shown` does it: kind,
kernel, then `role [type] name [= expression] [@ buffer]` per argument.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import pytest

from rewriter.core.source import Source
from rewriter.locate.python.locate import locate
from rewriter.locate.types import Argument, Launch, Located

PREAMBLE = """
from ctypes import c_void_p, c_long, c_int
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
inductor_ops = torch.ops.inductor
async_compile = AsyncCompile()
"""


def triton(
    name: str, parameters: str, *, mutated: str = "", head: str = "pointwise", extra: str = ""
) -> str:
    """A Triton kernel as wrappers define it; pointers are told by `ptr` in their names."""
    names = parameters.split()
    types = {one: "*fp32" if "ptr" in one else "i32" for one in names}
    return f"""
{name} = async_compile.triton('{name}', '''
import triton
@triton_heuristics.{head}(
    size_hints={{'x': 64}},
    triton_meta={{'signature': {types | {"XBLOCK": "constexpr"}!r}}},
    inductor_meta={{'kernel_name': '{name}', 'mutated_arg_names': {mutated.split()!r}}},{extra}
)
@triton.jit
def {name}({", ".join(names)}, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
"""


def cpp(name: str, parameters: str) -> str:
    """A C++ kernel as wrappers define it."""
    types = [one.rpartition(" ")[0] for one in parameters.split(", ")]
    return f"""
{name} = async_compile.cpp_pybinding({types!r}, r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel({parameters})
{{
}}
''')
"""


KERNELS = "".join(
    [
        triton("poi", "in_ptr0 out_ptr0 xnumel"),
        triton("poi2", "in_ptr0 in_ptr1 out_ptr0 xnumel"),
        triton("inplace", "in_out_ptr0 in_ptr0 xnumel"),
        triton("atomic", "in_ptr0 out_ptr0 xnumel", mutated="out_ptr0"),
        triton("symbolic", "in_ptr0 out_ptr0 ks0 xnumel"),
        triton("split", "in_ptr0 out_ptr0 out_ptr1 xnumel"),
        triton("ws", "in_ptr0 out_ptr0 ws_ptr xnumel", mutated="ws_ptr"),
        triton("triton_tem_fused_mm_0", "in_ptr0 in_ptr1 out_ptr0", head="template"),
        triton("triton_for_fused_0", "in_ptr0 out_ptr0 out_ptr1", head="foreach"),
        "\nmulti_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [\npoi,\n    poi2\n])\n",
        "\nadd_k_0 = async_compile.triton('add_k', '''\n"
        "@triton_heuristics.user_autotune(\n"
        "    triton_meta={'signature': {'x': '*fp32', 'o': '*fp32', 'acc': '*fp32', 'n': 'i32', "
        "'B': 'constexpr'}},\n    custom_kernel=True,\n)\n@triton.jit\n"
        "def add_k(x, o, acc, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    v = tl.load(x + i)\n    tl.store(o + i, v)\n    tl.atomic_add(acc + i, v)\n"
        "''', device_str='cuda')\n",
        cpp("cpp_fused_add_0", "const float* in_ptr0, float* out_ptr0"),
        cpp("cpp_fused_inplace_1", "float* in_out_ptr0, const float* in_ptr0"),
        cpp("cpp_fused_size_2", "const float* in_ptr0, float* out_ptr0, const int64_t ks0"),
        "\ncuda_fused_0 = async_compile.cuda(r'''\n"
        "int cuda_fused_0(const void* X, const void* W, void* Y, void* workspace)''', 'so')\n",
    ]
)


def located(body: str, *, before: str = "", kernels: str = KERNELS, after: str = "") -> Located:
    """What is found in a wrapper whose call has this body."""
    text = (
        f"{before}{PREAMBLE}{kernels}\n"
        "async_compile.wait(globals())\ndel async_compile\n\n"
        "def call(args):\n    arg0_1, arg1_1, arg2_1, s0 = args\n    args.clear()\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        f"    return (buf0, )\n{after}"
    )
    return locate(Source("output_code.py", text.encode()))


def shown(launch: Launch) -> str:
    arguments = " | ".join(map(shown_argument, launch.args))
    return f"{launch.kind} {launch.kernel}: {arguments}"


def shown_argument(argument: Argument) -> str:
    type_ = "" if argument.type == "tensor" else f"{argument.type} "
    expr = "" if argument.expr == argument.name else f" = {argument.expr}"
    buffer = "" if argument.buffer in (argument.name, "") else f" @ {argument.buffer}"
    return f"{argument.role} {type_}{argument.name}{expr}{buffer}"


# --- No launches --------------------------------------------------------------------------------

NOT_LAUNCHES = {
    "nothing": "pass",
    "empty_strided": "buf0 = empty_strided((4, ), (1, ), device='cpu', dtype=torch.float32)",
    "empty_strided_cpu": "buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)",
    "empty_strided_cpu_pinned": "buf0 = empty_strided_cpu_pinned((4, ), (1, ), torch.float32)",
    "empty_strided_cuda": "buf0 = empty_strided_cuda((s0, ), (1, ), torch.float32)",
    "empty_strided_xpu": "buf0 = empty_strided_xpu((4, ), (1, ), torch.float32)",
    "empty_strided_mtia": "buf0 = empty_strided_mtia((4, ), (1, ), torch.float32)",
    "empty_strided_p2p": "buf0 = empty_strided_p2p((4, ), (1, ), torch.float32, 'cuda:0', '0', 1)",
    "torch.empty": "buf0 = torch.empty((4, ), device='cpu')",
    "aten.empty": "buf0 = aten.empty.memory_format([4])",
    "alloc_from_pool": "buf0 = alloc_from_pool(pool0, 0, torch.float32, (4, ), (1, ))",
    "reinterpret_tensor": "buf0 = reinterpret_tensor(arg0_1, (2, 2), (2, 1), 0)",
    "_reinterpret_tensor": "buf0 = torch.ops.inductor._reinterpret_tensor(arg0_1, (4, ), (1, ))",
    "view.dtype": "buf0 = aten.view.dtype(arg0_1, torch.int32)",
    "as_strided": "buf0 = arg0_1.as_strided((4, ), (1, ))",
    "view chain": "buf0 = reinterpret_tensor(arg0_1, (4, ), (1, ), 0).unsqueeze(0).permute(1, 0)",
    "copy_if_misaligned": "arg0_1 = copy_if_misaligned(arg0_1)",
    "copy_": "buf0.copy_(arg0_1, False)",
    "copy_ of a view": "reinterpret_tensor(buf0, (4, ), (1, ), 0).copy_(arg0_1)",
    "zero_": "workspace_0.zero_()",
    "fill_": "buf0.fill_(0)",
    "clone": "buf0 = arg0_1.clone()",
    "contiguous": "buf0 = arg0_1.contiguous()",
    "stack": "buf0 = torch.stack([arg0_1, arg1_1])",
    "assert_size_stride": "assert_size_stride(arg0_1, (s0, 32), (32, 1), 'input')",
    "assert_size_stride_grouped": "assert_size_stride_grouped((arg0_1, arg1_1), (4, ), (1, ))",
    "assert_alignment": "assert_alignment(arg0_1, 16, 'torch.ops.aten.topk.default')",
    "assert_tensor_metadata": "assert_tensor_metadata(arg0_1, None, None, torch.float32)",
    "runtime assertion": "if not (s0 >= 0):\n    raise RuntimeError('s0 >= 0')",
    "nan assertion": "assert not buf0.isnan().any().item()",
    "get_raw_stream": "stream0 = get_raw_stream(0)",
    "set_device": "torch.cuda.set_device(0)",
    "device guard": "with torch.cuda._DeviceGuard(0):\n    torch.cuda.set_device(0)",
    "synchronize": "torch.cuda.synchronize()",
    "stream": "with torch.cuda.stream(stream1):\n    event0.record()",
    "sizes": "u0 = arg0_1.size(0)\nu1 = math.floor(u0 / 2)\nu2 = max(1, u1)",
    "item": "u0 = buf0.item()",
    "item as bool": "if buf1.item():\n    pass",
    "int of item": "buf2_selector = int(buf1.item())",
    "sym": "u0 = torch.sym_float(s0)",
    "args.clear": "args.clear()",
    "partition": "(buf0, buf4) = self.partitions[0](partition0_args)",
    "reuse": "buf1 = buf0; del buf0  # reuse",
    "delete": "del arg0_1, arg1_1",
    "element": "buf8 = buf7[0]",
    "list": "buf1 = [None] * 2\nbuf1[0] = buf0",
    "graph hooks": "start_graph()\nend_graph()",
    "record_function": "with record_function('graph_0'):\n    pass",
    "intermediate hook": "run_intermediate_hooks('buf0', buf0)",
    "upstream's printer": "_print_debugging_tensor_value_info('inductor: before_launch - k', buf0)",
    "grid": "grid0 = grid(256)",
    "a comment": "# poi.run(arg0_1, buf0, 64, stream=stream0)",
    "a string": "'''\npoi.run(arg0_1, buf0, 64, stream=stream0)\nextern_kernels.mm(a, b)\n'''",
    "an attribute": "f = extern_kernels.mm",
}


@pytest.mark.parametrize("body", NOT_LAUNCHES.values(), ids=NOT_LAUNCHES)
def test_no_launch(body: str) -> None:
    found = located(body)
    assert [shown(launch) for launch in found.launches] == []
    assert found.unrecognised == ()


SUBGRAPH = """
def true_graph_0(args):
    x, = args
    args.clear()
    return (x, )
"""


def test_calls_of_subgraphs_are_scopes() -> None:
    body = "buf0 = true_graph_0([arg0_1])\n(buf1, ) = true_graph_0([buf0])"
    found = located(body, kernels=KERNELS + SUBGRAPH)
    assert (found.launches, found.unrecognised) == ((), ())


UNRECOGNISED = {
    "function": ("mystery(buf0)", ["mystery(buf0)"]),
    "method": ("buf0.mystery_()", ["buf0.mystery_()"]),
    "assigned": ("buf0 = mystery(arg0_1)", ["mystery(arg0_1)"]),
    "torch function": ("buf0 = torch.relu(arg0_1)", ["torch.relu(arg0_1)"]),
    "run without a stream": ("loop.run()", ["loop.run()"]),
    "kernel called like a function": ("poi(arg0_1, buf0)", ["poi(arg0_1, buf0)"]),
    "in the head of a block": ("if mystery(s0):\n    pass", ["mystery(s0)"]),
    "inside an argument": ("buf0 = reinterpret_tensor(mystery(arg0_1), (4, ), (1, ), 0)",
        ["mystery(arg0_1)"]),
    "over several lines": ("mystery(\n    arg0_1,\n    buf0,\n)", ["mystery( arg0_1, buf0, )"]),
    "two": ("first(buf0); second(buf0)", ["first(buf0)", "second(buf0)"]),
    "of a subscript": ("table[0](buf0)", ["table[0](buf0)"]),
    "of a lambda": ("(lambda x: x)(buf0)", ["(lambda x: x)(buf0)"]),
}  # fmt: skip


@pytest.mark.parametrize(("body", "texts"), UNRECOGNISED.values(), ids=UNRECOGNISED)
def test_unrecognised_calls_are_reported(body: str, texts: list[str]) -> None:
    found = located(body)
    assert found.launches == ()
    assert sorted(call.text for call in found.unrecognised) == sorted(texts)
    assert all(call.line > 0 for call in found.unrecognised)


DOCSTRING = '''r"""
Compile-time auto-tuning block:

poi = async_compile.triton('poi', \'\'\'...\'\'\')
def call(args):
    poi.run(arg0_1, buf0, 64, stream=stream0)
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    torch.ops.aten.topk.default(buf0, 3)
"""
'''


def test_an_autotuning_block_in_the_docstring_is_text() -> None:
    found = located("poi.run(arg0_1, arg1_1, 64, stream=stream0)", before=DOCSTRING)
    assert len(found.launches) == 1
    assert found.unrecognised == ()


def test_the_wrapper_s_own_harness_is_no_scope() -> None:
    harness = textwrap.dedent(
        """
        def benchmark_compiled_module(times=10, repeat=10):
            from torch._dynamo.testing import rand_strided
            arg0_1 = rand_strided((4, ), (1, ), device='cuda:0', dtype=torch.float32)
            poi.run(arg0_1, arg0_1, 64, stream=stream0)
            fn = lambda: call([arg0_1])
            return print_performance(fn, times=times, repeat=repeat)

        def get_args():
            return [rand_strided((4, ), (1, ))]

        if __name__ == "__main__":
            compiled_module_main('None', benchmark_compiled_module)
        """
    )
    found = located("pass", after=harness)
    assert (found.launches, found.unrecognised) == ((), ())


# --- Launches -----------------------------------------------------------------------------------

NEW = "buf0 = empty_strided_cuda((64, ), (1, ), torch.float32)\n"


@dataclass(frozen=True)
class Row:
    body: str
    launches: tuple[str, ...]


def row(body: str, *launches: str) -> Row:
    return Row(body, launches)


STREAM = "in other stream0"

LAUNCHES = {
    # Triton
    "triton": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "raw stream": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=raw_stream0)",
        "triton poi: in arg0_1 | out buf0 | in scalar 64 | in other raw_stream0",
    ),
    "grid (2.6)": row(
        NEW + "poi.run(arg0_1, buf0, 64, grid=grid(64), stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | in other grid(64) | {STREAM}",
    ),
    "symbolic sizes": row(
        NEW + "poi_xnumel = 64*s0\nsymbolic.run(arg0_1, buf0, s0, poi_xnumel, stream=stream0)",
        "triton symbolic: in arg0_1 | out buf0 | in scalar s0 | in scalar poi_xnumel | " + STREAM,
    ),
    "arithmetic in the call": row(
        NEW + "poi.run(arg0_1, buf0, 64*s0, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar s0 = 64*s0 | {STREAM}",
    ),
    "item": row(
        NEW + "poi.run(arg0_1, buf0, arg1_1.item(), stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar arg1_1 | {STREAM}",
    ),
    "in place": row(
        NEW + "extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n"
        "buf1 = buf0; del buf0  # reuse\ninplace.run(buf1, arg2_1, 64, stream=stream0)",
        "extern_out extern_kernels.mm: in arg0_1 | in arg1_1 | out buf0",
        f"triton inplace: inout buf1 @ buf0 | in arg2_1 | in scalar 64 | {STREAM}",
    ),
    "in place over nothing": row(
        NEW + "buf1 = buf0; del buf0  # reuse\ninplace.run(buf1, arg2_1, 64, stream=stream0)",
        f"triton inplace: out buf1 @ buf0 | in arg2_1 | in scalar 64 | {STREAM}",
    ),
    "output over what is dead": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "buf1 = buf0; del buf0  # reuse\npoi.run(arg1_1, buf1, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg1_1 | out buf1 @ buf0 | in scalar 64 | {STREAM}",
    ),
    "atomics": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "atomic.run(arg1_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton atomic: in arg1_1 | inout buf0 | in scalar 64 | {STREAM}",
    ),
    "an input is mutated": row(
        "atomic.run(arg0_1, arg0_1, 64, stream=stream0)",
        f"triton atomic: inout arg0_1 | inout arg0_1 | in scalar 64 | {STREAM}",
    ),
    "an input is overwritten": row(
        "poi.run(arg0_1, arg1_1, 64, stream=stream0)",
        f"triton poi: in arg0_1 | inout arg1_1 | in scalar 64 | {STREAM}",
    ),
    "workspace": row(
        NEW + "workspace_0 = empty_strided_cuda((8, ), (1, ), torch.uint8)\n"
        "workspace_0.zero_()\nws.run(arg0_1, buf0, workspace_0, 64, stream=stream0)",
        "triton ws: in arg0_1 | out buf0 | inout workspace_0 | in scalar 64 | " + STREAM,
    ),
    "template": row(
        NEW + "triton_tem_fused_mm_0.run(arg0_1, arg1_1, buf0, 16, 1, 1, stream=stream0)",
        "triton_template triton_tem_fused_mm_0: in arg0_1 | in arg1_1 | out buf0 | "
        f"in scalar 16 | in scalar 1 | in scalar 1 | {STREAM}",
    ),
    "combo": row(
        NEW + "buf1 = empty_strided_cuda((4, ), (1, ), torch.float32)\n"
        "triton_for_fused_0.run(arg0_1, buf0, buf1, stream=stream0)",
        f"combo triton_for_fused_0: in arg0_1 | out buf0 | out buf1 | {STREAM}",
    ),
    "multi kernel": row(
        NEW + "multi_kernel_0.run(arg0_1, buf0, 64, stream=stream0)",
        f"multi_kernel multi_kernel_0: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "user's kernel": row(
        NEW + "add_k_0.run(arg0_1, buf0, arg1_1, 64, 4, 1, 1, stream=stream0)",
        "triton_user add_k_0: in arg0_1 | out buf0 | inout arg1_1 | in scalar 64 | in scalar 4 | "
        f"in scalar 1 | in scalar 1 | {STREAM}",
    ),
    "a kernel that is elsewhere": row(
        NEW + "elsewhere.run(arg0_1, buf0, 64, stream=stream0)",
        f"triton elsewhere: inout arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "a view as argument": row(
        NEW + "poi.run(reinterpret_tensor(arg0_1, (8, 8), (1, 8), 0), buf0, 64, stream=stream0)",
        "triton poi: in arg0_1 = reinterpret_tensor(arg0_1, (8, 8), (1, 8), 0) | out buf0 | "
        f"in scalar 64 | {STREAM}",
    ),
    "two views of one buffer": row(
        NEW + "poi2.run(reinterpret_tensor(arg0_1, (4, ), (1, ), 0), "
        "reinterpret_tensor(arg0_1, (4, ), (1, ), 4), buf0, 64, stream=stream0)",
        "triton poi2: in arg0_1 = reinterpret_tensor(arg0_1, (4, ), (1, ), 0) | "
        "in arg0_1.2 = reinterpret_tensor(arg0_1, (4, ), (1, ), 4) @ arg0_1 | out buf0 | "
        f"in scalar 64 | {STREAM}",
    ),
    "a view over a dead buffer": row(
        NEW + "extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n"
        "buf1 = reinterpret_tensor(buf0, (8, 8), (8, 1), 0); del buf0  # reuse\n"
        "poi.run(arg2_1, buf1, 64, stream=stream0)",
        "extern_out extern_kernels.mm: in arg0_1 | in arg1_1 | out buf0",
        f"triton poi: in arg2_1 | out buf1 @ buf0 | in scalar 64 | {STREAM}",
    ),
    "an alias that is read": row(
        "buf1 = reinterpret_tensor(arg0_1, (8, 8), (8, 1), 0)\n" + NEW
        + "poi.run(buf1, buf0, 64, stream=stream0)",
        f"triton poi: in buf1 @ arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "cat": row(
        NEW + "buf1 = reinterpret_tensor(buf0, (4, ), (1, ), 0)  # alias\n"
        "poi.run(arg0_1, buf1, 4, stream=stream0)\n"
        "buf2 = reinterpret_tensor(buf0, (4, ), (1, ), 4)  # alias\n"
        "poi.run(arg1_1, buf2, 4, stream=stream0)\n"
        "extern_kernels.mm(buf0, buf0, out=arg2_1)",
        f"triton poi: in arg0_1 | out buf1 @ buf0 | in scalar 4 | {STREAM}",
        f"triton poi: in arg1_1 | out buf2 @ buf0 | in scalar 4 | {STREAM}",
        "extern_out extern_kernels.mm: in buf0 | in buf0 | inout arg2_1",
    ),
    "cat with both aliases first": row(
        NEW + "buf1 = reinterpret_tensor(buf0, (4, ), (1, ), 0)  # alias\n"
        "buf2 = reinterpret_tensor(buf0, (4, ), (1, ), 4)  # alias\n"
        "poi.run(arg0_1, buf1, 4, stream=stream0)\n"
        "poi.run(arg1_1, buf2, 4, stream=stream0)",
        f"triton poi: in arg0_1 | out buf1 @ buf0 | in scalar 4 | {STREAM}",
        f"triton poi: in arg1_1 | out buf2 @ buf0 | in scalar 4 | {STREAM}",
    ),
    "parts and whole in one launch": row(
        NEW + "buf1 = reinterpret_tensor(buf0, (4, ), (1, ), 0)  # alias\n"
        "split.run(buf0, buf1, arg0_1, 4, stream=stream0)",
        f"triton split: out buf0 | out buf1 @ buf0 | inout arg0_1 | in scalar 4 | {STREAM}",
    ),
    # C++ and CUTLASS
    "cpp": row(
        "buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)\ncpp_fused_add_0(arg0_1, buf0)",
        "cpp cpp_fused_add_0: in arg0_1 | out buf0",
    ),
    "cpp in place": row(
        "cpp_fused_inplace_1(arg0_1, arg1_1)",
        "cpp cpp_fused_inplace_1: inout arg0_1 | in arg1_1",
    ),
    "cpp with a size": row(
        NEW + "cpp_fused_size_2(arg0_1, buf0, s0)",
        "cpp cpp_fused_size_2: in arg0_1 | out buf0 | in scalar s0",
    ),
    "cpp that is elsewhere": row(
        NEW + "cpp_fused_elsewhere_9(arg0_1, buf0)",
        "cpp cpp_fused_elsewhere_9: inout arg0_1 | out buf0",
    ),
    "cutlass": row(
        NEW + "stream0 = get_raw_stream(0)\ncuda_fused_0.cuda_fused_0(c_void_p(arg0_1.data_ptr()), "
        "c_void_p(arg1_1.data_ptr()), c_void_p(buf0.data_ptr()), None, c_void_p(stream0))",
        "cuda cuda_fused_0: in arg0_1 | in arg1_1 | out buf0 | in other None | " + STREAM,
    ),
    # Library calls
    "extern out": row(
        NEW + "extern_kernels.addmm(arg0_1, arg1_1, arg2_1, alpha=1, beta=1, out=buf0)",
        "extern_out extern_kernels.addmm: in arg0_1 | in arg1_1 | in arg2_1 | in scalar 1 | "
        "in scalar 1 | out buf0",
    ),
    "extern out into a view": row(
        NEW + "extern_kernels.bmm(arg0_1, arg1_1, out=reinterpret_tensor(buf0, (2, 2), (2, 1), 4))",
        "extern_out extern_kernels.bmm: in arg0_1 | in arg1_1 | "
        "out buf0 = reinterpret_tensor(buf0, (2, 2), (2, 1), 4)",
    ),
    "extern out and in": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "extern_kernels.addmm(buf0, arg1_1, arg2_1, alpha=1, beta=1, out=buf0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        "extern_out extern_kernels.addmm: inout buf0 | in arg1_1 | in arg2_1 | in scalar 1 | "
        "in scalar 1 | inout buf0",
    ),
    "random numbers": row(
        NEW + "aten.randint.low_out(-9223372036854775808, 9223372036854775807, [1], out=buf0)",
        "extern_out aten.randint.low_out: in scalar -9223372036854775808 | "
        "in scalar 9223372036854775807 | in scalar 1 | out buf0",
    ),
    "custom op with several outs": row(
        NEW + "buf1 = empty_strided_cuda((4, ), (1, ), torch.float32)\n"
        "torch.ops.corp.split.out(arg0_1, 2, out0=buf0, out1=buf1)",
        "extern_out torch.ops.corp.split.out: in arg0_1 | in scalar 2 | out buf0 | out buf1",
    ),
    "extern alloc": row(
        "buf0 = extern_kernels.convolution(arg0_1, arg1_1, stride=(2, 1), bias=None)",
        "extern_alloc extern_kernels.convolution: in arg0_1 | in arg1_1 | in scalar 2 | "
        "in scalar 1 | in other None | out buf0",
    ),
    # Operators
    "fallback": row(
        "buf0 = torch.ops.aten.nonzero.default(arg0_1)",
        "fallback torch.ops.aten.nonzero.default: in arg0_1 | out buf0",
    ),
    "several results": row(
        "buf7 = torch.ops.aten.topk.default(arg0_1, 3)\nbuf0 = buf7[0]\n"
        "assert_size_stride(buf0, (8, 3), (3, 1))\nbuf9 = buf7[1]\ndel buf7",
        "fallback torch.ops.aten.topk.default: in arg0_1 | in scalar 3 | out buf0 = buf7[0] | "
        "out buf9 = buf7[1]",
    ),
    "one of several results": row(
        "buf7 = torch.ops.aten.topk.default(arg0_1, 3)\nbuf0 = buf7[1]\ndel buf7",
        "fallback torch.ops.aten.topk.default: in arg0_1 | in scalar 3 | out buf0 = buf7[1]",
    ),
    "results of two launches by one name": row(
        "buf7 = torch.ops.aten.topk.default(arg0_1, 3)\nbuf0 = buf7[0]\ndel buf7\n"
        "buf7 = torch.ops.aten.topk.default(arg1_1, 3)\nbuf1 = buf7[1]\ndel buf7",
        "fallback torch.ops.aten.topk.default: in arg0_1 | in scalar 3 | out buf0 = buf7[0]",
        "fallback torch.ops.aten.topk.default: in arg1_1 | in scalar 3 | out buf1 = buf7[1]",
    ),
    "unpacked results": row(
        "buf0, buf1 = torch.ops.aten.topk.default(arg0_1, 3)",
        "fallback torch.ops.aten.topk.default: in arg0_1 | in scalar 3 | out buf0 | out buf1",
    ),
    "scatter": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "aten.scatter_reduce_.two(buf0,0,arg1_1,arg2_1, reduce='sum', include_self=True)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        "fallback aten.scatter_reduce_.two: inout buf0 | in scalar 0 | in arg1_1 | in arg2_1 | "
        "in other 'sum' | in other True",
    ),
    "scatter of a number": row(
        "aten.scatter_.value(arg0_1,0,arg1_1,1.0, reduce='add')",
        "fallback aten.scatter_.value: inout arg0_1 | in scalar 0 | in arg1_1 | in scalar 1.0 | "
        "in other 'add'",
    ),
    "index_put_": row(
        "aten.index_put_(arg0_1, [arg1_1], arg2_1, True)",
        "fallback aten.index_put_: inout arg0_1 | in arg1_1 | in arg2_1 | in other True",
    ),
    "index_put_ with a gap": row(
        "aten.index_put_(arg0_1, [None, arg1_1], arg2_1, False)",
        "fallback aten.index_put_: inout arg0_1 | in other None | in arg1_1 | in arg2_1 | "
        "in other False",
    ),
    "a list of tensors": row(
        "buf0 = torch.ops.aten.cat.default([arg0_1, arg1_1], 1)",
        "fallback torch.ops.aten.cat.default: in arg0_1 | in arg1_1 | in scalar 1 | out buf0",
    ),
    "resize": row(
        "inductor_ops.resize_storage_bytes_(arg0_1, 1024)",
        "fallback inductor_ops.resize_storage_bytes_: inout arg0_1 | in scalar 1024",
    ),
    "custom op": row(
        "buf0 = torch.ops.corp.scale.default(arg0_1, 2.5, 3)",
        "custom_op torch.ops.corp.scale.default: in arg0_1 | in scalar 2.5 | in scalar 3 | "
        "out buf0",
    ),
    "mutating custom op": row(
        "torch.ops.corp.inc_.default(arg0_1, arg1_1)",
        "custom_op torch.ops.corp.inc_.default: inout arg0_1 | in arg1_1",
    ),
    "custom op run for an effect that nobody declares": row(
        "torch.ops.corp.update.default(arg0_1, arg1_1, 3)",
        "custom_op torch.ops.corp.update.default: inout arg0_1 | inout arg1_1 | in scalar 3",
    ),
    # Collectives
    "all_reduce_": row(
        "torch.ops._c10d_functional.all_reduce_.default(arg0_1, 'sum', '0')",
        "collective torch.ops._c10d_functional.all_reduce_.default: inout arg0_1 | "
        "in other 'sum' | in other '0'",
    ),
    "all_gather": row(
        "buf0 = torch.ops._c10d_functional.all_gather_into_tensor.default(arg0_1, 2, '0')",
        "collective torch.ops._c10d_functional.all_gather_into_tensor.default: in arg0_1 | "
        "in scalar 2 | in other '0' | out buf0",
    ),
    # Layout
    "over several lines": row(
        NEW + "poi.run(\n    arg0_1,  # read\n    buf0,\n    64,\n    stream=stream0,\n)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "two on a line": row(
        "extern_kernels.mm(arg0_1, arg0_1, out=arg1_1); "
        "extern_kernels.mm(arg1_1, arg1_1, out=arg2_1)",
        "extern_out extern_kernels.mm: in arg0_1 | in arg0_1 | inout arg1_1",
        "extern_out extern_kernels.mm: in arg1_1 | in arg1_1 | inout arg2_1",
    ),
    "in a return": row(
        "return (torch.ops.aten.relu.default(arg0_1), )",
        "fallback torch.ops.aten.relu.default: in arg0_1",
    ),
    "in the head of an if": row(
        "if torch.ops.aten.is_nonzero.default(arg0_1):\n    pass",
        "fallback torch.ops.aten.is_nonzero.default: in arg0_1",
    ),
    "in both branches": row(
        "if s0:\n"
        "    buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)\n"
        "    poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "else:\n"
        "    buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)\n"
        "    poi.run(arg1_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "in both branches, made before": row(
        NEW + "if s0:\n    poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "else:\n    poi.run(arg1_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "after an if that wrote": row(
        NEW + "if s0:\n    poi.run(arg0_1, buf0, 64, stream=stream0)\n"
        "else:\n    poi.run(arg1_1, buf0, 64, stream=stream0)\n"
        "atomic.run(arg2_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton atomic: in arg2_1 | inout buf0 | in scalar 64 | {STREAM}",
    ),
    "after an else that wrote": row(
        NEW + "if s0:\n    pass\nelse:\n    poi.run(arg1_1, buf0, 64, stream=stream0)\n"
        "atomic.run(arg2_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton atomic: in arg2_1 | inout buf0 | in scalar 64 | {STREAM}",
    ),
    "deleted in one branch": row(
        NEW + "if s0:\n    del arg0_1\n    poi.run(arg1_1, buf0, 64, stream=stream0)\n"
        "else:\n    poi.run(arg0_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
    "a name that is made again": row(
        NEW + "poi.run(arg0_1, buf0, 64, stream=stream0)\ndel buf0\n" + NEW
        + "poi.run(arg1_1, buf0, 64, stream=stream0)",
        f"triton poi: in arg0_1 | out buf0 | in scalar 64 | {STREAM}",
        f"triton poi: in arg1_1 | out buf0 | in scalar 64 | {STREAM}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("given", LAUNCHES.values(), ids=LAUNCHES)
def test_launch(given: Row) -> None:
    found = located(given.body)
    assert [shown(launch) for launch in found.launches] == list(given.launches)
    assert found.unrecognised == ()
    assert [launch.index for launch in found.launches] == list(range(len(found.launches)))


def test_waiting_for_a_collective_is_one() -> None:
    found = located("torch.ops._c10d_functional.wait_tensor.default(arg0_1)")
    assert [(launch.kind, launch.kernel) for launch in found.launches] == [
        ("collective", "torch.ops._c10d_functional.wait_tensor.default")
    ]
    # What is waited for has its value only afterwards: it is read then, at least.
    assert found.launches[0].args[0].role in ("out", "inout")


# --- Where lines may go -------------------------------------------------------------------------

POI = "poi.run(arg0_1, arg1_1, 64, stream=stream0)"
SITES = {
    "plain": (POI, "", "", False),
    "comment behind": (f"{POI}  # note", "", "", False),
    "statement before": (f"x = 1; {POI}", "shares its line", "", False),
    "statement behind": (f"{POI}; x = 1", "shares its line", "", False),
    "delete behind": (f"{POI}; del arg0_1  # reuse", "shares its line", "", False),
    "behind a colon": (f"if s0: {POI}", "shares its line", "", False),
    "in the head of an if": (
        "if torch.ops.aten.is_nonzero.default(arg0_1):\n    pass", "head of a block", "", False,
    ),
    "in the head of a while": (
        "while torch.ops.aten.is_nonzero.default(arg0_1):\n    pass", "head of a block", "", None,
    ),
    "in a return": ("return (torch.ops.aten.relu.default(arg0_1), )", "", "return", False),
    "in a while": (f"while s0:\n    {POI}", "", "", True),
    "in a for": (f"for i in range(3):\n    {POI}", "", "", True),
    "in an if": (f"if s0:\n    {POI}", "", "", False),
    "in an else": (f"if s0:\n    pass\nelse:\n    {POI}", "", "", False),
    "in an elif": (f"if s0:\n    pass\nelif s0:\n    {POI}", "", "", False),
    "in a with": (f"with torch.cuda._DeviceGuard(0):\n    {POI}", "", "", False),
    "in a try": (f"try:\n    {POI}\nfinally:\n    pass", "", "", False),
    "in a finally": (f"try:\n    pass\nfinally:\n    {POI}", "", "", False),
    "in a with in a while": (f"while s0:\n    with guard0:\n        {POI}", "", "", True),
}  # fmt: skip


@pytest.mark.parametrize(("body", "obstacle", "open_ended", "repeats"), SITES.values(), ids=SITES)
def test_site(body: str, obstacle: str, open_ended: str, repeats: bool | None) -> None:
    (launch,) = located(body).launches
    assert bool(launch.insertion_point.obstacle) is bool(obstacle)
    assert obstacle in launch.insertion_point.obstacle
    assert bool(launch.insertion_point.open_ended) is bool(open_ended)
    assert open_ended in launch.insertion_point.open_ended
    # The head of a `while` runs each time, too.
    assert launch.repeats is (True if repeats is None else repeats)


def test_a_subgraph_s_launch_may_repeat_and_a_partition_s_does_not() -> None:
    template = "\ndef {}(args):\n    arg0_1, = args\n    args.clear()\n    return (arg0_1, )\n"
    kernels = KERNELS + "".join(
        template.format(name).replace("    return", f"    {POI}\n    return")
        for name in ("true_graph_0", "repeated_subgraph0", "partition_0")
    )
    found = located("true_graph_0([arg0_1])", kernels=kernels).launches
    assert [(launch.scope, launch.repeats) for launch in found] == [
        ("true_graph_0", True),
        ("repeated_subgraph0", True),
        ("partition_0", False),
    ]


# --- Provenance ---------------------------------------------------------------------------------

PROVENANCE = {
    "none": (POI, (), ()),
    "above": (
        "# Topologically Sorted Source Nodes: [linear, ], Original ATen: [aten.t, aten.addmm]\n"
        f"# [Provenance debug handles] poi:1\nstream0 = get_raw_stream(0)\n{POI}",
        ("linear",), ("aten.t", "aten.addmm"),
    ),
    "unsorted": (
        f"# Unsorted Source Nodes: [a, b], Original ATen: [aten.mm]\n{POI}",
        ("a", "b"), ("aten.mm",),
    ),
    "2.6": (
        f"# Source Nodes: [], Original ATen: []\n{POI}", (), (),
    ),
    "of the launch before": (
        f"# Source Nodes: [a], Original ATen: [aten.mm]\n{POI.replace('poi', 'elsewhere')}\n{POI}",
        (), (),
    ),
    "behind": (
        f"{POI}  # Source Nodes: [a], Original ATen: [aten.mm]", (), (),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "nodes", "origins"), PROVENANCE.values(), ids=PROVENANCE)
def test_provenance(body: str, nodes: tuple[str, ...], origins: tuple[str, ...]) -> None:
    launch = located(body).launches[-1]
    assert launch.source_nodes == nodes
    assert launch.origins == origins
