"""Every form that a launch takes in a Python wrapper, and what looks like one and is none.

The forms are rows of the tables in `shapes/python`: bodies of a call, and what is found in them as
`shown` writes it.
"""

from __future__ import annotations

import textwrap

import shapes
from rewriter.core.source import Source
from rewriter.locate.python.locate import locate
from rewriter.locate.types import Launch, Located

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


def dsl(language: str, name: str, parameters: str) -> str:
    """A kernel in a language that Python holds."""
    return f"""
{name} = async_compile.{language}('{name}', r'''
import torch
def {name}_kernel(refs):
    pass

def {name}_main({", ".join(parameters.split())}):
    pass
''')
"""


def metal(before: str, after: str) -> str:
    """A Metal kernel, as an argument of what compiles it."""
    return f"""
{before}'''
    kernel void generated_kernel(
        device float* out_ptr0,
        constant float* in_ptr0,
        device float* in_out_ptr0,
        constant long& ks0,
        uint2 thread_pos [[thread_position_in_grid]],
        device c10::metal::ErrorMessages* error_buf [[buffer(4)]]
    ) {{
        out_ptr0[0] = in_ptr0[0];
    }}
'''{after}
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
        "\nxpu_fused_0 = async_compile.xpu(r'''\n"
        "int xpu_fused_0(const void* X, const void* W, void* Y, void* workspace)''', 'so')\n",
        "\ncutlass_1a2b3c4d = async_compile.xpu(r'''\n"
        "int cutlass_1a2b3c4d(const void* X, const void* W, void* Y, void* workspace)''', 'so')\n",
        dsl("pallas", "pallas_fused_add_1a2b3c4d", "out_ptr0_alias in_ptr0 out_ptr0 stream=None"),
        dsl("pallas", "pallas_1a2b3c4d", "in_out_ptr0 in_ptr0 ks0 stream=None"),
        dsl("cutedsl", "cutedsl_1a2b3c4d", "arg_Q arg_LOGSUMEXP out_ptr0 stream"),
        dsl("flydsl", "flydsl_1a2b3c4d", "arg_A arg_B out_ptr0 stream"),
        dsl("nv_universal_gemm", "nv_1a2b3c4d", "in_ptr0 buf7 out_ptr0 workspace stream=None"),
        "\nhalide_kernel_0 = async_compile.halide(HalideMeta(argtypes=["
        "HalideInputSpec(ctype='float*', name='in_ptr0', shape=['8L'], alias_of=None), "
        "HalideInputSpec(ctype='float*', name='in_ptr0_view1', shape=['2L'], alias_of='in_ptr0'), "
        "HalideInputSpec(ctype='long', name='ks0', shape=None, alias_of=None), "
        "HalideInputSpec(ctype='float*', name='out_ptr0', shape=['8L'], alias_of=None)], "
        "target='host'), '''\nimport halide as hl\n''')\n",
        metal("generated_kernel_0 = async_compile.metal('generated_kernel_0', ", ", ['utils'])"),
        metal("mps_lib_0 = compile_mps_shader(", ")"),
        "\n@triton.jit\ndef _helion_add(x, y, out, _BLOCK: tl.constexpr):\n"
        "    tl.store(out + 0, tl.load(x) + tl.load(y))\n"
        "\ndef helion_add_0(x, y):\n    out = torch.empty_like(x)\n"
        "    _launcher(_helion_add, (1,), x, y, out, 32)\n    return out\n"
        "\ndef helion_inc_1(x, y):\n    _launcher(_helion_add, (1,), x, y, x, 32)\n    y[0] = 1\n"
        "\ndef get_raw_stream(_):\n    return 0\n",
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
    arguments = " | ".join(map(shapes.argument, launch.args))
    return f"{launch.kind} {launch.kernel}: {arguments}"


# --- No launches --------------------------------------------------------------------------------


@shapes.rows("python/not_launches", "body")
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


@shapes.rows("python/unrecognised", "body", "texts")
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


@shapes.rows("python/launches", "body", "launches")
def test_launch(body: str, launches: list[str]) -> None:
    found = located(body)
    assert [shown(launch) for launch in found.launches] == launches
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


@shapes.rows("python/sites", "body", "obstacle", "open_ended", "repeats")
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


@shapes.rows("python/provenance", "body", "nodes", "origins")
def test_provenance(body: str, nodes: list[str], origins: list[str]) -> None:
    launch = located(body).launches[-1]
    assert launch.source_nodes == tuple(nodes)
    assert launch.origins == tuple(origins)
