"""What a call returned against its graph as a whole: a dump and a graph written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from launch_facts import checked
from rewriter.diagnosis.outputs import of_calls
from rewriter.diagnosis.verification import call_results
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.calls import as_recorded
from rewriter.diagnosis.verification.end_to_end import CallCheck, check_outputs
from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.diagnosis.verification.types import Checked
from rewriter.dump import dataflow
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import renamed

KIND = '"f32[4, 8][8, 1]cpu"'
GRAPH = f"""
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: {KIND}):
        mul: {KIND} = torch.ops.aten.mul.Tensor(arg0_1, 2)
        add: {KIND} = torch.ops.aten.add.Tensor(mul, 1);  mul = None
        return (add,)
"""
INC = "mine = torch.ops.mine.inc_.default(add)"

X = torch.arange(32.0).reshape(4, 8)
GIVEN = dumps.value("arg0_1", file="x.pt")
CPP = {"kind": "cpp", "scope": "call"}


def _dump(
    tmp_path: Path, launches: list[Any], returned: list[str], graph: str, **files: torch.Tensor
) -> Path:
    """A dump of a call, and the files of its tensors by their names."""
    tensors = {f"{name}.pt": tensor for name, tensor in {"x": X, **files}.items()}
    more: dict[str, Any] = {"outputs": returned, "graph": graph, "tensors": tensors}
    return dumps.write(tmp_path / "x.dump", launches, inputs=[GIVEN], **more)


def _check(tmp_path: Path, returned: torch.Tensor, graph: str = GRAPH) -> CallCheck:
    left = {
        "dtype": str(returned.dtype).removeprefix("torch."), "shape": list(returned.shape),
        "stride": list(returned.stride()), "numel": returned.numel(), "file": "y.pt",
    }  # fmt: skip
    launches = [dumps.launch(0, "cpp_a", [GIVEN], [dumps.value("buf0", "out", **left)], **CPP)]
    (call,) = check_outputs(_dump(tmp_path, launches, ["buf0"], graph, y=returned))
    return call


RIGHT = torch.arange(32.0).reshape(4, 8) * 2 + 1


def test_what_the_graph_gives_agrees(tmp_path: Path) -> None:
    call = _check(tmp_path, RIGHT)
    assert (call.reason, call.wrong) == ("", ())
    assert [one.arg for one in call.outputs] == ["buf0"]


def test_what_it_does_not_give_is_wrong_at_its_element(tmp_path: Path) -> None:
    returned = RIGHT.clone()
    returned[2, 3] += 1e-3
    (output,) = _check(tmp_path, returned).wrong
    assert (output.comparison.wrong, output.comparison.at) == (1, (2, 3))
    assert output.claim.startswith("add = ")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        pytest.param("", "its graph is not known", id="none"),
        pytest.param(
            GRAPH.replace("aten.add.Tensor(mul, 1)", "aten.rand_like.default(mul)"), "random",
            id="random",
        ),
        pytest.param(
            GRAPH.replace("        return", f"        {INC}\n        return"),
                "mine.inc_.default is not registered",
            id="in-place",
        ),
        pytest.param(GRAPH.replace("(add,)", "(add, arg0_1)"), "was not recorded", id="outputs"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_says_why(graph: str, reason: str, tmp_path: Path) -> None:
    call = _check(tmp_path, RIGHT + 5, graph)
    assert call.wrong == ()
    assert reason in call.reason


@pytest.mark.parametrize("off", [0.0, 1e-3])
def test_behind_an_operator_of_the_program_its_recorded_result_counts(
    off: float, tmp_path: Path
) -> None:
    graph = GRAPH.replace("aten.mul.Tensor(arg0_1, 2)", "nobody.mix.default(arg0_1)")
    mixed, kernel = dumps.value("buf0", "out", file="m.pt"), "torch.ops.nobody.mix.default"
    read, made = {**mixed, "role": "in"}, dumps.value("buf1", "out", file="y.pt")
    launches = [
        dumps.launch(0, kernel, [GIVEN], [mixed], kind="custom_op", scope="call"),
        dumps.launch(1, "cpp_a", [read], [made], **CPP),
    ]
    dump = _dump(tmp_path, launches, ["buf1"], graph, m=X.sin(), y=X.sin() + 1 + off)
    recorded = Checked("buf0", "mul = nobody.mix.default(arg0_1)", as_recorded(32))
    check = checked(step=0, kernel=kernel, route="arguments", results=(recorded,))
    (call,) = check_outputs(dump)
    assert "is not registered here" in call.reason
    (call,) = check_outputs(dump, [check])
    assert (call.reason, len(call.outputs), len(call.wrong)) == ("", 1, int(off > 0))


def test_a_result_whose_size_depends_on_the_device_is_not_compared(tmp_path: Path) -> None:
    """`_embedding_bag` keeps more for its backward on a CPU than on a GPU."""
    sizes = "[4][1]cpu"
    graph = f"""
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: {KIND}):
        full: "i64{sizes}" = torch.ops.aten.full.default([4], 0, dtype = torch.int64)
        bag = torch.ops.aten._embedding_bag.default(arg0_1, full, full);  full = None
        getitem: "i64[0][1]cpu" = bag[3];  bag = None
        return (getitem,)
"""
    call = _check(tmp_path, torch.empty(0, dtype=torch.int64), graph)
    assert call.wrong == ()
    assert "getitem has another shape" in call.reason


def test_an_output_that_the_graph_leaves_open_has_a_reason(tmp_path: Path) -> None:
    """Rounding decides whether a divisor is zero."""
    lines = (
        ("mul", "cos.default(arg0_1)"),
        ("part", "div.Tensor(mul, 3)"),
        ("whole", "mul.Tensor(part, 3)"),
        ("none", "sub.Tensor(whole, mul)"),
        ("parts", "reciprocal.default(none)"),
        ("sums", "mean.dim(parts, [0, 1], True)"),
        ("add", "add.Tensor(arg0_1, sums)"),
    )
    of = {"sums": ': "f32[1, 1][1, 1]cpu"'}
    body = "".join(
        f"        {name}{of.get(name, f': {KIND}')} = torch.ops.aten.{x}\n" for name, x in lines
    )
    head, tail = GRAPH.split("        mul:")[0], "        return (add,)\n"
    call = _check(tmp_path, X, head + body + tail)
    assert (call.wrong, call.missing) == ((), 1)
    assert call.reason.startswith("buf0: its graph gives no definite value: ")


WRAPPER = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_a = async_compile.cpp_pybinding(['const float*', 'float*', 'float*'], r'''
extern "C"  void  cpp_fused_a(const float* in_ptr0, float* out_ptr0, float* out_ptr1)
{}
''')


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_a(arg0_1, buf0, GIVEN)
    return (buf0, RETURNED)
"""
UPDATES = GRAPH.replace(
    "return (add,)", "copy_ = torch.ops.aten.copy_.default(arg0_1, mul)\n        return (add,)"
)


def _of_wrapper(
    tmp_path: Path, given: str, returned: str, graph: str, computes: tuple[str, ...] = ()
) -> CallCheck:
    """The check of a call whose launch writes `add` to buf0, and nothing else that was recorded."""
    text = WRAPPER.replace("GIVEN", given).replace("RETURNED", returned)
    found = [dumps.launch(0, "cpp_a", [GIVEN], [dumps.value("buf0", "out", file="y.pt")], **CPP)]
    dump = dumps.write(
        tmp_path / "x.dump", found, inputs=[GIVEN], wrapper=text, graph=graph,
        outputs=["buf0", *filter(None, [returned])], tensors={"x.pt": X, "y.pt": RIGHT},
    )  # fmt: skip
    check = checked(kernel="cpp_a", computes=computes)
    (call,) = check_outputs(dump, [check])
    return call


TWO = GRAPH.replace("mul = None", "").replace("(add,)", "(add, mul)")


def test_an_output_that_no_launch_writes_is_wrong(tmp_path: Path) -> None:
    call = _of_wrapper(tmp_path, "buf1.clone()", "buf1", TWO)
    assert [(one.arg, one.problem) for one in call.wrong] == [
        ("buf1", "nothing is written by a launch")
    ]
    assert call.culprit is not None
    at, problem = call.culprit.check.launch, call.culprit.of.problem
    assert (at, problem) == (0, "it only writes a copy, buf1.clone()")
    # What a launch without a record may write, and what has no value, is not compared.
    unknown = _of_wrapper(tmp_path / "b", "buf1", "buf1", TWO)
    said = "buf1, whose last writer was not recorded"
    assert (unknown.wrong, unknown.missing, unknown.reason) == ((), 1, said)
    empty = "torch.ops.aten.empty.memory_format([4, 8], dtype = torch.float32)"
    free = TWO.replace("return (", f"free: {KIND} = {empty}\n        return (").replace(
        "mul)", "free)"
    )
    undefined = _of_wrapper(tmp_path / "c", "buf1.clone()", "buf1", free)
    assert (undefined.wrong, undefined.missing) == ((), 0)


@pytest.mark.parametrize(
    ("given", "computes", "launch", "problem"),
    [
        ("arg0_1.clone()", (), 0, "it only writes a copy, arg0_1.clone()"),
        ("buf1", ("copy_ = aten.copy_.default(arg0_1, mul)",), 0, ""),
        ("buf1", ("copy_ = aten.copy_.default(arg9_1, mul)",), None, ""),
    ],
)
def test_an_update_that_is_lost_names_the_launch_that_has_to_write_it(
    given: str, computes: tuple[str, ...], launch: int | None, problem: str, tmp_path: Path
) -> None:
    call = _of_wrapper(tmp_path, given, "", UPDATES, computes)
    assert [one.arg for one in call.wrong] == ["arg0_1"]
    found = call.culprit
    assert (found and (found.check.launch, found.of.problem)) == (
        None if launch is None else (launch, problem)
    )


@pytest.mark.parametrize(
    ("view", "is_wrong"),
    [
        ("(8, 2), (1, 8), 8", False),
        ("(8, 2), (1, 8), s0", False),  # not known
        ("(8, 2), (1, 8), 800", False),  # behind what was recorded
        ("(8, 2), (1, 8), 16", True),
        ("(2, 8), (8, 1), 8", True),
        ("(8, 2), (2, 1), 8", True),
    ],
)
def test_a_view_that_is_returned_is_the_one_of_the_graph(
    view: str, is_wrong: bool, tmp_path: Path
) -> None:
    """Rows 1 and 2 of `buf0`, transposed."""
    returned = f"reinterpret_tensor(buf0, {view})"
    nodes = """slice_1: "f32[2, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(add, 0, 1, 3)
        permute: "f32[8, 2][1, 8]cpu" = torch.ops.aten.permute.default(slice_1, [1, 0])
        return (permute,)"""
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "cpp_a", [GIVEN], [dumps.value("buf0", "out", file="y.pt")], **CPP)],
        inputs=[GIVEN], outputs=["buf0"], tensors={"x.pt": X, "y.pt": RIGHT},
        wrapper=WRAPPER.replace("GIVEN", "buf1").replace("buf0, RETURNED", f"{returned}, "),
        graph=GRAPH.replace("return (add,)", nodes),
    )  # fmt: skip
    (call,) = check_outputs(dump)
    problem = f"the call returns {returned}, which is another view than the graph returns"
    assert [x.problem for x in call.wrong] == [problem] * is_wrong
    assert (call.reason, len(call.outputs), call.culprit) == ("", 1, None)


@pytest.mark.parametrize(
    ("claim", "offset", "is_wrong"),
    [("add", 0, False), ("add", 8, True), ("another", 8, False), ("mul", 8, False)],
)
def test_a_view_that_is_returned_is_one_of_what_was_checked_whatever_the_graph_gives(
    claim: str, offset: int, is_wrong: bool, tmp_path: Path
) -> None:
    """Rounding may decide all of a large model from its inputs, and nothing of a view."""
    returned = f"reinterpret_tensor(buf0, (3, 8), (8, 1), {offset})"
    nodes = """slice_1: "f32[3, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(add, 0, 0, 3)
        return (slice_1,)"""
    made = dumps.value("buf0", "out", file="y.pt")
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "extern_kernels.add", [GIVEN], [made], **CPP)],
        inputs=[GIVEN], outputs=["buf0"], tensors={"x.pt": X, "y.pt": RIGHT},
        wrapper=WRAPPER.replace("GIVEN", "buf1").replace("buf0, RETURNED", f"{returned}, "),
        graph=GRAPH.replace("mul.Tensor(arg0_1, 2)", "empty_like.default(arg0_1)").replace(
            "return (add,)", nodes
        ),
    )  # fmt: skip
    result = Checked("buf0", "extern_kernels.add", as_recorded(32))
    check = checked(
        step=1, kernel=result.claim, route="operator", results=(result,),
        computes=(f"{claim} = aten.{claim}.Tensor(mul, 1)",),
    )  # fmt: skip
    (call,) = check_outputs(dump, [check])
    assert len(call.wrong) == is_wrong
    assert all(returned in x.problem for x in call.wrong)


def test_a_view_begins_where_its_buffer_does_and_not_where_a_launch_wrote(tmp_path: Path) -> None:
    """A launch wrote the last three rows of `buf0`, and the first two of these are returned."""
    part = dumps.value("buf0", "out", shape=[3, 8], stride=[8, 1], numel=24, file="y.pt")
    label = ["out", "buf0", "reinterpret_tensor(buf0, (3, 8), (8, 1), 8)"]
    returned = "reinterpret_tensor(buf0, (2, 8), (8, 1), 8)"
    nodes = """slice_1: "f32[3, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(add, 0, 1, 4)
        slice_2: "f32[2, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(add, 0, 1, 3)
        return (slice_2,)"""
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "cpp_a", [GIVEN], [part], after=[label], **CPP)],
        inputs=[GIVEN], outputs=["buf0"], tensors={"x.pt": X, "y.pt": RIGHT[1:].clone()},
        wrapper=WRAPPER.replace("GIVEN", "buf1").replace("buf0, RETURNED", f"{returned}, "),
        graph=GRAPH.replace("return (add,)", nodes),
    )  # fmt: skip
    (call,) = check_outputs(dump)
    assert [x.problem for x in call.wrong] == []
    assert (len(call.outputs), call.reason) == (1, "")


@pytest.mark.parametrize(
    ("returned", "node", "wrong"),
    [
        ("reinterpret_tensor(buf9, (4, 8), (8, 1), 0)", "slice_1", 0),
        ("reinterpret_tensor(buf9, (8, 4), (1, 8), 0)", "permute", 0),
        ("reinterpret_tensor(buf9, (2, 8), (8, 1), 24)", "slice_2", 0),
        ("reinterpret_tensor(buf9, (4, 8), (8, 1), 32)", "slice_1", 31),
        ("reinterpret_tensor(buf9, (4, 8), (8, 1), s0)", "slice_1", None),
    ],
)
def test_a_view_of_a_buffer_of_parts_is_not_the_part_that_was_written_last(
    returned: str, node: str, wrong: int | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(call_results, "are_writes_recorded", lambda *_: True)
    nodes = """mul: "f32[4, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(arg0_1, 2)
        cat: "f32[8, 8][8, 1]cpu" = torch.ops.aten.cat.default([arg0_1, mul])
        slice_1: "f32[4, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(cat, 0, 0, 4)
        slice_2: "f32[2, 8][8, 1]cpu" = torch.ops.aten.slice.Tensor(cat, 0, 3, 5)
        permute: "f32[8, 4][1, 8]cpu" = torch.ops.aten.permute.default(slice_1, [1, 0])
        return (NODE,)"""
    graph, _, _ = GRAPH.partition("        mul")
    after, made = list[list[str]](), list[dumps.Row]()
    for number, name in enumerate("xy"):
        made.append(dumps.value(f"buf{number}", "out", file=f"{name}.pt"))
        place = f"reinterpret_tensor(buf9, (4, 8), (8, 1), {32 * number})"
        after.append(["out", f"buf{number}", place])
    facts = {"after": after, "buffers": {"buf0": "buf9", "buf1": "buf9"}, **CPP}
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "cpp_a", [GIVEN], made, **facts)],
        inputs=[GIVEN], outputs=["buf9"], tensors={"x.pt": X, "y.pt": X * 2},
        wrapper=WRAPPER.replace("GIVEN", "buf1").replace("buf0, RETURNED", f"{returned}, "),
        graph=graph + "        " + nodes.replace("NODE", node),
    )  # fmt: skip
    (call,) = check_outputs(dump)
    assert [x.comparison.wrong for x in call.wrong] == ([wrong] if wrong else [])
    assert (call.reason == "") == (wrong is not None)


@pytest.mark.parametrize(
    ("dtype", "is_wrong"), [("int32", False), ("int16", False), ("float64", True)]
)
def test_a_view_as_another_type_is_what_was_written(
    dtype: str, is_wrong: bool, tmp_path: Path
) -> None:
    kind = {"int32": "i32[4, 8][8, 1]", "int16": "i16[4, 16][16, 1]", "float64": "f64[4, 8][8, 1]"}
    operator = "prims.convert_element_type.default" if is_wrong else "aten.view.dtype"
    node = f'view: "{kind[dtype]}cpu" = torch.ops.{operator}(add, torch.{dtype})'
    call = _check(tmp_path, RIGHT, GRAPH.replace("return (add", f"{node}\n        return (view"))
    assert (len(call.wrong), len(call.outputs), call.reason) == (is_wrong, 1, "")
    call = _check(
        tmp_path / "b", RIGHT + 1, GRAPH.replace("return (add", f"{node}\n        return (view")
    )
    assert len(call.wrong) == 1


@pytest.mark.parametrize(
    ("target", "left", "wrong", "reason"),
    [
        ("ema", X * 2, [], ""),
        ("ema", X * 3, ["ema"], ""),
        ("w", X * 2, ["w"], "what ema holds in the end was not recorded"),
    ],
)
def test_weights_of_a_package_hold_what_its_graph_gives(
    target: str, left: torch.Tensor, wrong: list[str], reason: str, tmp_path: Path
) -> None:
    """The inputs of its calls have no weights: a launch that reads them tells what they held."""
    graph = GRAPH.replace("mul.Tensor(arg0_1, 2)", "mul.Tensor(arg0_1, w)").replace(
        f"        mul: {KIND}",
        f"        w: {KIND} = self.w\n        ema: {KIND} = self.ema\n        mul: {KIND}",
    )
    copy = f"copy_: {KIND} = torch.ops.aten.copy_.default(ema, mul);  copy_ = None\n        return"
    graph = graph.replace("return", copy)
    w, mul, add = (
        dumps.value(name, role, file=f"{file}.pt")
        for name, role, file in (("w", "in", "w"), ("buf0", "out", "m"), ("buf1", "out", "y"))
    )
    written = [add, {**add, "arg": target, "file": "l.pt"}]
    launches = [
        dumps.launch(0, "cpp_mul", [GIVEN, w], [mul], **CPP),
        dumps.launch(1, "cpp_add", [{**mul, "role": "in"}], written, **CPP),
    ]
    files = {"w": torch.full((4, 8), 2.0), "m": X * 2, "y": RIGHT, "l": left}
    (call,) = check_outputs(_dump(tmp_path, launches, ["buf1"], graph, **files))
    assert [x.arg for x in call.wrong] == wrong
    assert (call.reason, call.missing) == (reason, bool(reason))


JOINED = f"""
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: {KIND}):
        sin: {KIND} = torch.ops.aten.sin.default(arg0_1)
        cos: {KIND} = torch.ops.aten.cos.default(arg0_1)
        cat: "f32[8, 8][8, 1]cpu" = torch.ops.aten.cat.default([sin, cos])
        return (cat,)
"""


@pytest.mark.parametrize(
    ("elsewhere", "is_read", "launch"),
    [(None, False, None), ("buf1", False, 0), ("buf2", False, 1), ("buf1", True, None)],
)
def test_a_part_that_is_written_elsewhere_names_the_launch_that_wrote_it(
    elsewhere: str | None, is_read: bool, launch: int | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A launch that reads what the first one wrote has a use for it."""
    monkeypatch.setattr(call_results, "are_writes_recorded", lambda *_: True)
    parts = {"buf1": ("sin", 0), "buf2": ("cos", 32)}
    launches = []
    for number, (buffer, (name, start)) in enumerate(parts.items()):
        after = [["out", buffer, f"reinterpret_tensor(buf0, (4, 8), (8, 1), {start})"]]
        made = [dumps.value(buffer, "out", file=f"{name}.pt")]
        buffers = {} if buffer == elsewhere else {buffer: "buf0"}
        facts = {"buffers": buffers, "after": after, **CPP}
        launches.append(dumps.launch(number, f"cpp_{name}", [GIVEN], made, **facts))
    if is_read:
        read = [dumps.value("buf1", file="sin.pt")]
        launches.append(dumps.launch(2, "cpp_c", read, [dumps.value("buf3", "out")], **CPP))
    dump = _dump(tmp_path, launches, ["buf0"], JOINED, sin=X.sin(), cos=X.cos())
    checks = [
        checked(launch=n, step=1 + n, computes=(f"{name} = aten.{name}.default(arg0_1)",))
        for n, name in enumerate(("sin", "cos"))
    ]
    (call,) = check_outputs(dump, checks)
    assert bool(call.wrong) == bool(elsewhere)
    assert (call.culprit and call.culprit.check.launch) == launch
    if call.culprit is not None:
        assert call.culprit.of.problem == (
            f"elements {32 * launch} to {32 * launch + 31} of 64 are written by no launch: "
            f"{('sin', 'cos')[launch]}, which belongs there, is in {elsewhere}, and nothing reads "
            "that"
        )


@pytest.mark.parametrize(("lost", "named"), [(0, None), (1, 2)])
def test_a_launch_behind_one_that_was_not_recorded_is_not_blamed(
    lost: int, named: int | None, tmp_path: Path
) -> None:
    text = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mul(arg0_1, arg0_1, out=buf0)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mul(arg0_1, arg0_1, out=buf1)
    buf2 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.add(buf0, buf0, out=buf2)
    return (buf2, )
"""
    off = {"m": X * 3, "y": X * 3 + 1} if lost == 0 else {"m": X * 2, "y": X * 2 + 5}
    mul, add = dumps.value("buf0", file="m.pt"), dumps.value("buf2", "out", file="y.pt")
    launches = [
        dumps.launch(0, "extern_kernels.mul", [GIVEN], [{**mul, "role": "out"}], **CPP),
        dumps.launch(2, "extern_kernels.add", [mul], [add], **CPP),
    ]
    dump = dumps.write(
        tmp_path, launches[lost == 0 :], inputs=[GIVEN], wrapper=text, graph=GRAPH,
        outputs=["buf2"], tensors={f"{x}.pt": y for x, y in {"x": X, **off}.items()},
    )  # fmt: skip
    result = Checked("buf2", "add = aten.add.Tensor(mul, 1)", as_recorded(32))
    check = checked(step=2, launch=2, kernel="extern_kernels.add", route="graph", results=(result,))
    (call,) = check_outputs(dump, [check])
    assert [x.arg for x in call.wrong] == ["buf2"]
    assert (call.culprit and call.culprit.check.launch) == named


@pytest.mark.parametrize(
    ("operator", "times", "named", "other"),
    [("mul", 3, 0, None), ("sin", 3, 1, 0), ("mul", 2, 1, None)],
)
def test_a_launch_that_is_right_by_its_statement_only_is_suspected(
    operator: str, times: int, named: int, other: int | None, tmp_path: Path
) -> None:
    """Its statement may differ from the graph: what reads its result is not blamed alone."""
    text = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mul(arg0_1, 3, out=buf0)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.add(buf0, buf0, out=buf1)
    return (buf1, )
"""
    made, last = dumps.value("buf0", "out", file="m.pt"), dumps.value("buf1", "out", file="y.pt")
    launches = [
        dumps.launch(0, "extern_kernels.mul", [GIVEN], [made], **CPP),
        dumps.launch(1, "extern_kernels.add", [{**made, "role": "in"}], [last], **CPP),
    ]
    files = {"x.pt": X, "m.pt": X * times, "y.pt": X * 3 + 1}
    dump = dumps.write(
        tmp_path, launches, inputs=[GIVEN], wrapper=text, outputs=["buf1"], tensors=files,
        graph=GRAPH.replace("mul.Tensor(arg0_1, 2)", f"{operator}.Tensor(arg0_1, 2)").replace(
            "sin.Tensor(arg0_1, 2)", "sin.default(arg0_1)"
        ),
    )  # fmt: skip
    result = Checked("buf0", "extern_kernels.mul", as_recorded(32))
    checks = [
        checked(step=1, kernel="extern_kernels.mul", route="operator", results=(result,)),
        checked(step=2, launch=1, kernel="extern_kernels.add", outcome="unchecked", route=""),
    ]
    (call,) = check_outputs(dump, checks)
    assert call.culprit is not None
    assert call.culprit.check.launch == named
    assert call.culprit.of.claim.startswith("add = " if named else "mul = ")
    assert (call.culprit.other and call.culprit.other.launch) == other
    (found, _) = of_calls([call]).findings
    assert ("or #0 extern_kernels.mul (line 30) is wrong: " in found.what) == (other is not None)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_launch_that_is_missing_is_looked_for_behind_what_it_reads(
    is_elsewhere: bool, tmp_path: Path
) -> None:
    """What computes `cumsum` is gone, so a right `mul` is given `sin`, and `add` what that made."""
    files = {"s": X.sin(), "m": X.sin() * 2, "y": X.sin() * 2 + 1, "c": X.sin().cumsum(0)}
    sin, mul, add, cumsum = (
        dumps.value(f"buf{n}", "out", file=f"{file}.pt") for n, file in enumerate(files)
    )
    launches = [
        dumps.launch(0, "cpp_sin", [GIVEN], [sin], **CPP),
        dumps.launch(1, "extern_kernels.mul", [{**sin, "role": "in"}], [mul], **CPP),
        dumps.launch(2, "cpp_add", [{**mul, "role": "in"}], [add], **CPP),
        dumps.launch(3, "aten.cumsum", [{**sin, "role": "in"}], [cumsum], **CPP),
    ]
    graph = GRAPH.replace("mul.Tensor(arg0_1, 2)", "mul.Tensor(cumsum, 2)").replace(
        f"        mul: {KIND}",
        f"        sin: {KIND} = torch.ops.aten.sin.default(arg0_1)\n"
        f"        cumsum: {KIND} = torch.ops.aten.cumsum.default(sin, 0)\n        mul: {KIND}",
    )
    dump = _dump(tmp_path, launches[: 3 + is_elsewhere], ["buf2"], graph, **files)
    of_sin, of_mul, of_add = (
        Checked(f"buf{n}", claim, as_recorded(32))
        for n, claim in enumerate(
            (
                "sin = aten.sin.default(arg0_1)",
                "extern_kernels.mul",
                "add = aten.add.Tensor(mul, 1)",
            )
        )
    )
    checks = [
        checked(step=1, kernel="cpp_sin", route="graph", results=(of_sin,)),
        checked(step=2, launch=1, kernel="extern_kernels.mul", route="operator", results=(of_mul,)),
        checked(step=3, launch=2, kernel="cpp_add", route="graph", results=(of_add,)),
    ]
    (call,) = check_outputs(dump, checks)
    assert call.culprit is not None
    at, holds = call.culprit.check.launch, call.culprit.holds
    assert (at, holds) == ((1, "") if is_elsewhere else (0, "sin"))
    (found, _) = of_calls([call]).findings
    missing = (
        "; or a launch behind it is missing: it leaves sin, and no launch computes cumsum of that"
    )
    assert (missing in found.what) != is_elsewhere


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (["torch.ops.mine.add_.default", "torch.ops.mine.add_.default"], []),
        (["torch.ops.mine.add_.default", "some_function"], []),  # which may call it
        (["torch.ops.mine.add_.default"], ["arg0_1"]),
        ([], ["arg0_1", "arg0_1"]),
    ],
)
def test_an_update_by_an_operator_of_the_program_is_not_left_out(
    called: list[str], said: list[str], tmp_path: Path
) -> None:
    text = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mul(arg0_1, arg0_1, out=buf0)
UPDATES    return (buf0, )
"""
    lines = "".join(f"    {name}(arg0_1)\n" for name in called)
    updates = "        mine = torch.ops.mine.add_.default(arg0_1);  mine = None\n"
    updates += updates.replace("mine =", "mine_1 =")
    graph = GRAPH.replace("        return", f"{updates}        return")
    made = dumps.value("buf0", "out", file="y.pt")
    dump = dumps.write(
        tmp_path, [dumps.launch(0, "extern_kernels.mul", [GIVEN], [made], **CPP)], inputs=[GIVEN],
        wrapper=text.replace("UPDATES", lines), graph=graph, outputs=["buf0"],
        tensors={"x.pt": X, "y.pt": RIGHT},
    )  # fmt: skip
    (call,) = check_outputs(dump)
    assert [x.arg for x in call.wrong] == said
    problem = "no launch calls mine.add_.default, which updates it"
    assert all(x.problem == problem for x in call.wrong)


def _results(path: Path, launches: list[Any], **saved: torch.Tensor) -> call_results.CallResults:
    files = {f"{name}.pt": tensor for name, tensor in saved.items()}
    (run,) = open_dump(dumps.write(path / "x.dump", launches, tensors=files)).runs
    flow = dataflow.Flow(run)
    return call_results.CallResults(run, flow, flow.nodes[-1])


def test_a_buffer_of_parts_lies_as_what_reads_it_was_given_it(tmp_path: Path) -> None:
    """A concatenation before a convolution is channels-last, whatever its graph says."""
    last, first = [24, 1, 12, 6], [24, 4, 2, 1]
    part = {"shape": [2, 2, 2, 2], "stride": last, "numel": 16}
    whole = dumps.value("buf0", shape=[2, 6, 2, 2], stride=last, numel=48)
    written = [dumps.value(f"buf{number}", "out", **part) for number in (1, 2)]
    buffers = {"buf1": "buf0", "buf2": "buf0"}
    launches = [
        dumps.launch(0, "cpp_a", [], written, buffers=buffers, **CPP),
        dumps.launch(1, "cpp_b", [whole], [dumps.value("buf3", "out")], **CPP),
    ]
    results = _results(tmp_path, launches)
    shape = (2, 6, 2, 2)
    assert results._stride("buf0", shape) == tuple(last)
    assert results._stride("buf3", shape) == ()
    (row, _) = results._parts["buf0"][0]
    assert call_results._lies_otherwise(row, shape, tuple(first))
    assert not call_results._lies_otherwise(row, shape, tuple(last))


def test_a_wrong_result_that_was_not_checked_names_the_launch_that_wrote_it(tmp_path: Path) -> None:
    """Other results of the launch may have been checked, and be right."""
    call = _of_wrapper(tmp_path, "buf1", "", GRAPH.replace("(mul, 1)", "(mul, 2)"))
    assert [one.arg for one in call.wrong] == ["buf0"]
    assert call.culprit is not None
    assert call.culprit.check.launch == 0


def test_a_part_that_no_launch_writes_is_found_whatever_its_graph_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package's graph has no strides, and may have weights that no launch was given."""
    monkeypatch.setattr(call_results, "are_writes_recorded", lambda *_: True)
    part = {"shape": [4, 5], "stride": [8, 1], "numel": 20, "file": "part.pt"}
    label = ["out", "buf1", "reinterpret_tensor(buf0, (4, 5), (8, 1), 0)"]
    read = dumps.value("buf0", shape=[4, 8], stride=[8, 1], numel=32)
    made, about = dumps.value("buf1", "out", **part), {"buffers": {"buf1": "buf0"}, **CPP}
    launches = [
        dumps.launch(0, "cpp_a", [], [made], after=[label], **about),
        dumps.launch(1, "cpp_b", [read], [dumps.value("buf3", "out")], **CPP),
    ]
    results = _results(tmp_path, launches, part=torch.ones(4, 5))
    (row, _) = results._parts["buf0"][0]
    named = renamed(row, "0: buf0")
    found = results.returned(named, TensorType(torch.float32, (4, 8), ()))
    assert found.unwritten is not None
    assert found.unwritten.nonzero()[:, 1].unique().tolist() == [5, 6, 7]
    # Of a larger buffer, or of one that the launch was given as it is, nothing is missing.
    assert results.returned(named, TensorType(torch.float32, (4, 4), ())).unwritten is None
    assert results.returned(named, TensorType(torch.float32, (4, 5), ())).unwritten is None


@pytest.mark.parametrize("last", [[4, 8], [4, 5]])
def test_a_slice_of_a_buffer_in_reused_memory_is_what_the_last_launch_wrote(
    last: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an attention's input in vLLM: a slice of what one operator wrote over another's result."""
    monkeypatch.setattr(call_results, "are_writes_recorded", lambda *_: True)
    part = {"stride": [8, 1], "file": "part.pt"}
    written = [
        dumps.value(f"buf{number}", "out", shape=shape, numel=shape[0] * shape[1], **part)
        for number, shape in enumerate(([4, 8], last))
    ]
    facts = {"kind": "custom_op", "scope": "call", "buffers": {"buf1": "buf0"}}
    launches = [dumps.launch(n, "op", [], [value], **facts) for n, value in enumerate(written)]
    results = _results(tmp_path, launches, part=torch.ones(*last))
    row = renamed(results._parts["buf0"][-1][0], "0: buf0")
    kind = TensorType(torch.float32, (4, 2, 2), (8, 2, 1))
    if last == [4, 8]:
        assert results.returned(row, kind).tensor.shape == (4, 8)
    else:  # a part, which may lie beside the slice
        with pytest.raises(UncheckedError, match=r"holds f32\[4, 5\], not f32\[4, 8\]"):
            results.returned(row, kind)
