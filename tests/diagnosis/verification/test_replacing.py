"""What stands in the place of launches, or why nothing does: invented wrappers and their graphs."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core import edit
from rewriter.diagnosis.verification.replacing.body import NoBodyError
from rewriter.diagnosis.verification.replacing.insert import replaced
from rewriter.diagnosis.verification.replacing.layouts import Layout, layouts
from rewriter.diagnosis.verification.replacing.proxy_calls import ProxyCalls
from rewriter.diagnosis.verification.replacing.substitutes import Substitutes, substitutes

_WRAPPER = '''\
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['{parameters}'], r"""
extern "C" void kernel({parameters}) {{}}
""")
async_compile.wait(globals())
class Runner:
    def call(self, args):
        {inputs}, = args
        args.clear()
        assert_size_stride(arg0_1, (4, 6), (6, 1), 'input')
{body}
runner = Runner()
call = runner.call
'''
_GRAPH = """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 6][6, 1]cpu"{more}):
{body}
"""
_READS = "const float* in_ptr0, float* out_ptr0"
_UPDATES = "float* in_out_ptr0"


def planned(
    tmp_path: Path, body: str, graph: str, parameters: str = _READS, *, precise: bool = False
) -> tuple[Wrapper, Substitutes]:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    text = _WRAPPER.format(parameters=parameters, inputs="arg0_1", body=lines)
    nodes = "\n".join(f"        {line}" for line in graph.strip().splitlines())
    wrapper = read_wrapper(tmp_path / "output_code.py", "output_code.py", text.encode())
    assert wrapper is not None
    read = substitutes(wrapper, _GRAPH.format(more="", body=nodes), {}, precise=precise)
    return wrapper, read


_OUT = "buf0 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
_CALL = _OUT + "cpp_fused_0(arg0_1, buf0)\nreturn (buf0, )"
_RELU = 'relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)\nreturn (relu,)'

KEPT = {
    "nothing of it is read": (
        _OUT + "cpp_fused_0(arg0_1, buf0)\nreturn (arg0_1, )",
        'relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)\nreturn (arg0_1,)',
        "nothing that it writes is read",
    ),
    "another type": (
        _CALL.replace("float32", "float16"), _RELU,
        "buf0 is torch.float16, and relu torch.float32",
    ),
    "another layout": (
        _CALL.replace("(4, 6), (6, 1)", "(24, ), (2, )"), _RELU, "buf0 lies otherwise than relu",
    ),
    "the order of a view": (
        _CALL.replace("(4, 6), (6, 1)", "(24, ), (1, )"),
        'relu: "f32[4, 6][1, 4]cpu" = torch.ops.aten.relu.default(arg0_1)\n'
        'permute: "f32[6, 4][4, 1]cpu" = torch.ops.aten.permute.default(relu, [1, 0])\n'
        'view: "f32[24][1]cpu" = torch.ops.aten.reshape.default(permute, [24])\nreturn (view,)',
        "buf0 lies otherwise than relu",
    ),
    "the order of a view with the same sizes": (
        _CALL.replace("(4, 6), (6, 1)", "(4, 4), (1, 4)"),
        'full: "f32[4, 4][4, 1]cpu" = torch.ops.aten.full.default([4, 4], 2)\n'
        'permute: "f32[4, 4][1, 4]cpu" = torch.ops.aten.permute.default(full, [1, 0])\n'
        "return (permute,)",
        "buf0 lies otherwise than full",
    ),
    "random numbers": (
        _CALL,
        'rand: "f32[4, 6][6, 1]cpu" = torch.ops.aten.rand_like.default(arg0_1)\nreturn (rand,)',
        "rand draws random numbers",
    ),
    "a graph inside of it": (
        _CALL,
        'cond: "f32[4, 6][6, 1]cpu" = torch.ops.higher_order.cond(arg0_1, a, b)\nreturn (cond,)',
        "cond is computed by a graph or a kernel inside of the graph",
    ),
    "an operator of a user that writes something": (
        _CALL,
        'clone: "f32[4, 6][6, 1]cpu" = torch.ops.aten.clone.default(arg0_1)\n'
        "own = torch.ops.mine.own.default(clone);  own = None\nreturn (clone,)",
        "which arguments mine.own.default writes is not known here",
    ),
    "a constant that it has inside": (
        _CALL,
        '_tensor: "f32[6][1]cpu" = self._tensor_constant0\n'
        'add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(arg0_1, _tensor)\nreturn (add,)',
        "what it writes needs _tensor, which it is not given",
    ),
    "a statement updates what it writes": (
        f"{_OUT}cpp_fused_0(arg0_1, buf0)\nbuf0.zero_()\nreturn (buf0, )",
        _RELU,
        "what buf0 holds is no node of the graph",
    ),
    "which of two nodes it is": (
        f"{_OUT}cpp_fused_0(arg0_1, buf0)\n{_OUT.replace('buf0', 'buf1')}"
        "cpp_fused_0(buf0, buf1)\nreturn (buf1, )",
        'relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)\n'
        'exp: "f32[4, 6][6, 1]cpu" = torch.ops.aten.exp.default(relu)\n'
        'sin: "f32[4, 6][6, 1]cpu" = torch.ops.aten.sin.default(exp)\nreturn (sin,)',
        "what buf0 holds is no node of the graph",
    ),
    "in which of two buffers it is, if the other value can be computed again": (
        f"{_OUT}cpp_fused_0(arg0_1, buf0)\n{_OUT.replace('buf0', 'buf1')}"
        "cpp_fused_0(arg0_1, buf1)\n"
        "buf2 = torch.ops.aten.addcmul.default(buf0, buf0, buf1)\nreturn (buf2, )",
        'full: "f32[4, 6][6, 1]cpu" = torch.ops.aten.full.default([4, 6], 2)\n'
        'relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)\n'
        'view: "f32[4, 6][6, 1]cpu" = torch.ops.aten.reshape.default(full, [4, 6])\n'
        'addcmul: "f32[4, 6][6, 1]cpu" = torch.ops.aten.addcmul.default(full, view, relu)\n'
        "return (addcmul,)",
        "what buf0 holds is no node of the graph",
    ),
    "which of two nodes it calls, which are given the same": (
        "buf0 = torch.ops.aten.cumsum.default(arg0_1, 1)\n"
        "buf1 = torch.ops.aten.cumsum.default(arg0_1, 0)\nreturn (buf0, buf1, )",
        'cumsum: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(arg0_1, 0)\n'
        'cumsum_1: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(arg0_1, 1)\n'
        "return (cumsum_1, cumsum)",
        "which node of the graph it calls is not known",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "graph", "reason"), KEPT.values(), ids=KEPT)
def test_a_launch_is_kept(body: str, graph: str, reason: str, tmp_path: Path) -> None:
    _, read = planned(tmp_path, body, graph)
    assert read.kept[0].reason == reason


@pytest.mark.parametrize(
    ("statement", "is_read"),
    [("del buf1", False), ("assert_size_stride(buf1, (4, 6), (6, 1))", False),
     ("u0 = buf1.item()", True), ("part_args = [buf1]", True),
     ("buf2 = buf1; del buf1  # reuse\npart_args = [buf2]", True)],
)  # fmt: skip
def test_what_a_statement_reads_has_to_be_written(
    statement: str, is_read: bool, tmp_path: Path
) -> None:
    body = f"{_OUT}{_OUT.replace('buf0', 'buf1')}cpp_fused_0(arg0_1, buf0, buf1)\n{statement}\n"
    _, read = planned(tmp_path, f"{body}return (buf0, )", _RELU, f"{_READS}, float* out_ptr1")
    reasons = ["what buf1 holds is no node of the graph"] * is_read
    assert [x.reason for x in read.kept] == reasons


def test_without_a_graph_nothing_is_replaced(tmp_path: Path) -> None:
    wrapper, _ = planned(tmp_path, _CALL, _RELU)
    read = substitutes(wrapper, "", {})
    assert (read.found, {x.reason for x in read.kept}) == ((), {"no graph of its wrapper is known"})


FOUND = {
    "a result": (
        _CALL, _RELU, _READS, ("arg0_1", "buf0"),
        ("relu = torch.ops.aten.relu.default(arg0_1)", "out0.copy_(relu)", "return True"),
    ),
    "in other sizes": (
        _CALL.replace("(4, 6), (6, 1)", "(24, ), (1, )"), _RELU, _READS,
        ("arg0_1", "buf0.view((4, 6))"),
        ("relu = torch.ops.aten.relu.default(arg0_1)", "out0.copy_(relu)", "return True"),
    ),
    "updated, with what reads a view of it": (
        "buf0 = arg0_1; del arg0_1  # reuse\ncpp_fused_0(buf0)\nreturn (buf0, )",
        _RELU, _UPDATES, ("buf0", "buf0"),
        ("relu = torch.ops.aten.relu.default(arg0_1)", "out0.copy_(relu)", "return True"),
    ),
    "one view of what it updates": (
        "buf0 = arg0_1; del arg0_1  # reuse\ncpp_fused_0(buf0)\nreturn (buf0, )",
        'alias: "f32[4, 6][6, 1]cpu" = torch.ops.aten.alias.default(arg0_1)\nreturn (alias,)',
        _UPDATES, ("buf0", "buf0"),
        ("arg0_1 = arg0_1.clone()", "out0.copy_(arg0_1)", "return True"),
    ),
    "what infinity and a device are": (
        _CALL,
        "full: \"f32[][]cpu\" = torch.ops.aten.full.default([], inf, device = device(type='cpu'))\n"
        'add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(arg0_1, full)\nreturn (add,)',
        _READS, ("arg0_1", "buf0"),
        ("from torch import device, inf",
         "full = torch.ops.aten.full.default([], inf, device = device(type='cpu'))",
         "add = torch.ops.aten.add.Tensor(arg0_1, full)", "out0.copy_(add)", "return True"),
    ),
    "an operator that writes its argument": (
        _CALL,
        'clone: "f32[4, 6][6, 1]cpu" = torch.ops.aten.clone.default(arg0_1)\n'
        'sin_: "f32[4, 6][6, 1]cpu" = torch.ops.aten.sin_.default(clone);  sin_ = None\n'
        "return (clone,)",
        _READS, ("arg0_1", "buf0"),
        ("clone = torch.ops.aten.clone.default(arg0_1)", "clone_of_sin_ = clone.clone()",
         "sin_ = torch.ops.aten.sin_.default(clone_of_sin_)", "out0.copy_(sin_)", "return True"),
    ),
    "an operator that returns its result": (
        "buf0 = torch.ops.aten.cumsum.default(arg0_1, 0)\n"
        "assert_size_stride(buf0, (4, 6), (6, 1), 'torch.ops.aten.cumsum.default')\n"
        "return (buf0, )",
        'cumsum: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(arg0_1, 0)\nreturn (cumsum,)',
        _READS, ("arg0_1",),
        ("cumsum = torch.ops.aten.cumsum.default(arg0_1, 0)",
         "cumsum = torch.empty_strided((4, 6), (6, 1), dtype=torch.float32, "
         "device=cumsum.device).copy_(cumsum)", "return cumsum"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "graph", "parameters", "arguments", "lines"), FOUND.values(), ids=FOUND
)
def test_a_launch_is_replaced(
    body: str,
    graph: str,
    parameters: str,
    arguments: tuple[str, ...],
    lines: tuple[str, ...],
    tmp_path: Path,
) -> None:
    wrapper, read = planned(tmp_path, body, graph, parameters)
    assert read.kept == ()
    (one,) = read.found
    assert (one.arguments, one.lines) == (arguments, lines)
    made = replaced(wrapper, read.found)
    assert edit.strip(made.source) == edit.Restored(
        wrapper.source, edit.strip(made.source).kept, exact=True
    )
    ast.parse(made.source)


def test_memory_that_is_read_in_another_layout_is_what_was_written_there(tmp_path: Path) -> None:
    body = f"""
{_OUT}cpp_fused_0(arg0_1, buf0)
buf1 = reinterpret_tensor(buf0, (6, 4), (1, 6), 0); del buf0  # reuse
buf2 = torch.ops.aten.cumsum.default(buf1, 0)
return (buf2, )
"""
    graph = """
relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)
permute: "f32[6, 4][1, 6]cpu" = torch.ops.aten.permute.default(relu, [1, 0])
cumsum: "f32[6, 4][4, 1]cpu" = torch.ops.aten.cumsum.default(permute, 0)
return (cumsum,)
"""
    _, read = planned(tmp_path, body, graph)
    assert [x.arguments for x in read.found] == [
        ("arg0_1", "buf0"),
        ("buf1.as_strided((4, 6), (6, 1))",),
    ]
    assert read.found[1].target == "buf2"


def test_memory_that_is_taken_over_and_updated_has_to_be_written_first(tmp_path: Path) -> None:
    """Its old values do not matter to the next launch, and what that leaves to the one after it."""
    body = f"""
{_OUT}cpp_fused_0(arg0_1, buf0)
buf1 = torch.ops.aten.cumsum.default(buf0, 0)
buf2 = buf0; del buf0  # reuse
cpp_fused_0(arg0_1, buf2)
aten.scatter_reduce_.two(buf2, 0, buf1, arg0_1, reduce='prod', include_self=True)
return (buf1, buf2, )
"""
    graph = """
relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)
cumsum: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(relu, 0)
reduced: "f32[4, 6][6, 1]cpu" = torch.ops.aten.scatter_reduce.two(arg0_1, 0, cumsum, arg0_1, 'prod')
return (cumsum, reduced)
"""
    _, read = planned(tmp_path, body, graph)
    written = {x.launch.index: x.arguments[-1] for x in read.found}
    reasons = {x.launch.index: x.reason for x in read.kept}
    assert written[0] == "buf0"
    assert written.get(2) == "buf2" or reasons[2] == "what buf2 holds is no node of the graph"


@pytest.mark.parametrize(
    ("dims", "found"), [((0, 1), [0, 1]), ((1, 0), []), ((0, 0), [0])], ids=str
)
def test_numbers_tell_which_of_several_nodes_a_call_is(
    dims: tuple[int, int], found: list[int], tmp_path: Path
) -> None:
    body = "\n".join(
        f"buf{n} = torch.ops.aten.cumsum.default(arg0_1, {dim})\n"
        f"assert_size_stride(buf{n}, (4, 6), (6, 1), 'cumsum')"
        for n, dim in enumerate(dims)
    )
    graph = """
cumsum: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(arg0_1, 0)
cumsum_1: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(arg0_1, 1)
return (cumsum, cumsum_1)
"""
    _, read = planned(tmp_path, f"{body}\nreturn (buf0, buf1, )", graph)
    assert [x.launch.index for x in read.found] == found


def test_what_is_given_twice_is_one_argument(tmp_path: Path) -> None:
    """As C++ gives what an operator updates: as its result, and as its argument."""
    body = f"""
{_OUT}cpp_fused_0(arg0_1, buf0)
{_OUT.replace("buf0", "buf1")}cpp_fused_0(arg0_1, buf1)
buf2 = torch.ops.aten.addcmul.default(buf0, buf0, buf1)
return (buf2, )
"""
    graph = """
exp: "f32[4, 6][6, 1]cpu" = torch.ops.aten.exp.default(arg0_1)
relu: "f32[4, 6][6, 1]cpu" = torch.ops.aten.relu.default(arg0_1)
addcmul: "f32[4, 6][6, 1]cpu" = torch.ops.aten.addcmul.default(exp, exp, relu)
return (addcmul,)
"""
    _, read = planned(tmp_path, body, graph)
    assert read.kept == ()
    assert [x.lines[0].partition(" ")[0] for x in read.found] == ["exp", "relu", "addcmul"]


def test_a_package_computes_with_the_sizes_of_tensors(tmp_path: Path) -> None:
    graph = """
size = torch.ops.aten.sym_size.int(arg0_1, 0)
half = size // 2
add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(arg0_1, half)
return (add,)
"""
    (found,) = planned(tmp_path, _CALL, graph)[1].found
    lines = ProxyCalls("f", "cpu", 0).lines(found, {"arg0_1": "arg0_1", "buf0": "buf0"}, ())
    size = "static_cast<int64_t>(f_size(arg0_1, 0))"
    assert any(f"c10::div_floor_integer({size}, static_cast<int64_t>(2))" in x for x in lines)


_REFUSED = {
    "an infinite constant": (
        "aten.clamp_min.default(arg0_1, -inf)",
        "an operator is given -inf, and a package has constants of operators in JSON",
    ),
    "an operator of Python": (
        "prims.rev.default(arg0_1, [0])",
        "prims.rev.default exists in Python alone, and a package runs without it",
    ),
}


@pytest.mark.parametrize(("call", "why"), _REFUSED.values(), ids=_REFUSED)
def test_what_a_package_cannot_call(call: str, why: str, tmp_path: Path) -> None:
    graph = f'made: "f32[4, 6][6, 1]cpu" = torch.ops.{call}\nreturn (made,)'
    (found,) = planned(tmp_path, _CALL, graph)[1].found
    with pytest.raises(NoBodyError, match=re.escape(why)):
        ProxyCalls("f", "cpu", 0).lines(found, {"arg0_1": "arg0_1", "buf0": "buf0"}, ())


def test_a_fused_kernel_ends_where_a_launch_calls_an_operator(tmp_path: Path) -> None:
    body, graph, before = [], [], ("arg0_1", "arg0_1")
    for i in range(40):
        made, called = f"buf{2 * i}", f"buf{2 * i + 1}"
        body += [
            _OUT.strip().replace("buf0", made),
            f"cpp_fused_0({before[0]}, {made})",
            f"{called} = torch.ops.aten.cumsum.default({made}, 0)",
            f"assert_size_stride({called}, (4, 6), (6, 1), 'cumsum')",
        ]
        graph += [
            f'exp{i}: "f32[4, 6][6, 1]cpu" = torch.ops.aten.exp.default({before[1]})',
            f'sin{i}: "f32[4, 6][6, 1]cpu" = torch.ops.aten.sin.default(exp{i})',
            f'sum{i}: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cumsum.default(sin{i}, 0)',
        ]
        before = called, f"sum{i}"
    text, nodes = (
        "\n".join([*x, f"return ({y}, )"]) for x, y in zip((body, graph), before, strict=True)
    )
    _, read = planned(tmp_path, text, nodes)
    assert (len(read.found), read.kept) == (80, ())


@pytest.mark.parametrize("end", ["", "\n"])
def test_outputs_are_kept_by_the_last_line(end: str, tmp_path: Path) -> None:
    wrapper, read = planned(tmp_path, _CALL, _RELU)
    wrapper = replace(wrapper, source=wrapper.source.rstrip(b"\n") + end.encode())
    made = replaced(wrapper, read.found, attempts="x", keeps=True)
    assert made.source.splitlines()[-1].startswith(b"from rewriter.runtime.attempt import keeping")
    assert edit.strip(made.source).source == wrapper.source


def test_in_float64_what_the_graph_converts_stays_wide(tmp_path: Path) -> None:
    graph = """
half: "bf16[4, 6][6, 1]cpu" = torch.ops.prims.convert_element_type.default(arg0_1, torch.bfloat16)
own: "f32[4, 6][6, 1]cpu" = torch.ops.mine.own.default(half)
return (own,)
"""
    _, read = planned(tmp_path, _CALL, graph, precise=True)
    assert read.found[0].lines == (
        "arg0_1 = arg0_1.double()",
        "half = torch.ops.prims.convert_element_type.default(arg0_1, torch.float64)",
        "own = torch.ops.mine.own.default(half.to(torch.bfloat16))",
        "out0.copy_(own)",
        "return True",
    )


LAYOUTS = {
    "two layouts": ("buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)\n"
                    "buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)", None),
    "a part": ("buf1 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
               "buf0 = reinterpret_tensor(buf1, (4, 2), (6, 1), 4)  # alias", (True, ("4", "2"))),
    "the end of a buffer": ("buf1 = empty_strided_cpu((4, ), (1, ), torch.float32)\n"
                            "buf0 = reinterpret_tensor(buf1, (4, ), (1, ), 2)", (True, ("4",))),
    "all of it": ("buf1 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
                  "buf0 = reinterpret_tensor(buf1, (24, ), (1, ), 0)", (False, ("24",))),
    "a smaller buffer in its memory": (
        "buf1 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
        "buf0 = reinterpret_tensor(buf1, (4, ), (1, ), 0); del buf1  # reuse", (False, ("4",))),
    "renamed": ("buf1 = empty_strided_cpu((s0*(s1//2), 6), (6, 1), torch.float32)\n"
                "buf0 = buf1; del buf1  # reuse", (False, ("s0*(s1//2)", "6"))),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_how_variables_lie(text: str, expected: tuple[bool, tuple[str, ...]] | None) -> None:
    found = layouts("".join(f"    {line}\n" for line in text.splitlines()), ()).get("buf0")
    assert (found and (found.is_part, found.size)) == expected


@pytest.mark.parametrize(
    ("size", "stride", "contiguous"),
    [
        (("2", "3"), ("1", "2"), False),
        (("s0", "3"), ("3", "1"), False),
        (("2", "1", "3"), ("3", "7", "1"), True),
        (("s0",), ("1",), True),
        ((), (), True),
    ],
)
def test_what_is_contiguous(
    size: tuple[str, ...], stride: tuple[str, ...], contiguous: bool
) -> None:
    assert Layout(size, stride).is_contiguous is contiguous
