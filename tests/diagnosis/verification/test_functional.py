"""Graphs whose operators write their arguments: each name has one value afterwards, the right one.

Each graph is evaluated, and compared with what the same statements compute with real memory.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import library

from rewriter.diagnosis.verification import functional
from rewriter.diagnosis.verification.bounded import UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator

X = torch.arange(24.0).reshape(4, 6)
_HEAD = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 6][6, 1]cpu", y: "f32[4, 6][6, 1]cpu"):
"""


@library.custom_op("functional_test::fill", mutates_args=("to",))
def fill(source: torch.Tensor, to: torch.Tensor) -> None:
    to.copy_(source.flip(0))


@library.custom_op("functional_test::both", mutates_args=("a", "b"))
def both(a: torch.Tensor, b: torch.Tensor, factor: float) -> torch.Tensor:
    a.mul_(factor)
    b.add_(a)
    return a + b


GRAPHS = {
    "an operator of a user": """
        fill = torch.ops.functional_test.fill.default(y, x);  fill = None
        mul: "f32[4, 6][6, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        return (mul, x)
    """,
    "twice": """
        fill = torch.ops.functional_test.fill.default(y, x)
        fill_1 = torch.ops.functional_test.fill.default(x, y)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        return (add,)
    """,
    "in place twice, each read by its own name": """
        mul: "f32[4, 6][6, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        add_: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add_.Tensor(mul, y);  mul = None
        add__1: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add_.Tensor(add_, x);  add_ = None
        neg: "f32[4, 6][6, 1]cpu" = torch.ops.aten.neg.default(add__1)
        return (neg, add__1)
    """,
    "by name": """
        fill = torch.ops.functional_test.fill.default(source = y, to = x)
        return (x,)
    """,
    "it returns a value, too": """
        both: "f32[4, 6][6, 1]cpu" = torch.ops.functional_test.both.default(x, y, 0.5)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(both, x)
        return (both, add, y)
    """,
    "into a part": """
        slice_1: "f32[2, 6][6, 1]cpu" = torch.ops.aten.slice.Tensor(x, 0, 1, 3)
        slice_2: "f32[2, 6][6, 1]cpu" = torch.ops.aten.slice.Tensor(y, 0, 0, 2)
        fill = torch.ops.functional_test.fill.default(slice_2, slice_1)
        mul: "f32[4, 6][6, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        return (mul, slice_1)
    """,
    "into two parts of one value": """
        slice_1: "f32[4, 2][6, 1]cpu" = torch.ops.aten.slice.Tensor(x, 1, 1, 3)
        slice_2: "f32[4, 2][6, 1]cpu" = torch.ops.aten.slice.Tensor(x, 1, 4, 6)
        permute: "f32[6, 4][1, 6]cpu" = torch.ops.aten.permute.default(x, [1, 0])
        both = torch.ops.functional_test.both.default(slice_1, slice_2, 0.5)
        mul: "f32[6, 4][1, 6]cpu" = torch.ops.aten.mul.Tensor(permute, 2)
        return (mul, x, slice_1, slice_2)
    """,
    "views of what is written": """
        permute: "f32[6, 4][1, 6]cpu" = torch.ops.aten.permute.default(x, [1, 0])
        select: "f32[4][1]cpu" = torch.ops.aten.select.int(permute, 0, 2)
        fill = torch.ops.functional_test.fill.default(y, x)
        mul: "f32[6, 4][1, 6]cpu" = torch.ops.aten.mul.Tensor(permute, 2)
        neg: "f32[4][1]cpu" = torch.ops.aten.neg.default(select)
        return (mul, neg)
    """,
    "as_strided of a transposed value": """
        permute: "f32[6, 4][1, 6]cpu" = torch.ops.aten.permute.default(x, [1, 0])
        add: "f32[6, 4][1, 6]cpu" = torch.ops.aten.add.Tensor(permute, 1)
        as_strided: "f32[6][1]cpu" = torch.ops.aten.as_strided.default(add, [6], [1], 6)
        full: "f32[6][1]cpu" = torch.ops.aten.full.default([6], 7.0)
        copy_: "f32[6][1]cpu" = torch.ops.aten.copy_.default(as_strided, full)
        mul: "f32[6, 4][1, 6]cpu" = torch.ops.aten.mul.Tensor(add, 2)
        return (mul, as_strided)
    """,
    "a diagonal, and a part that a split returns": """
        diagonal: "f32[4][7]cpu" = torch.ops.aten.diagonal.default(x)
        split = torch.ops.aten.split.Tensor(y, 2)
        getitem: "f32[2, 6][6, 1]cpu" = split[0]
        getitem_1: "f32[2, 6][6, 1]cpu" = split[1]
        full: "f32[4][1]cpu" = torch.ops.aten.full.default([4], 7.0)
        copy_: "f32[4][7]cpu" = torch.ops.aten.copy_.default(diagonal, full)
        mul_: "f32[2, 6][6, 1]cpu" = torch.ops.aten.mul_.Tensor(getitem_1, 3)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        return (add, getitem, getitem_1)
    """,
    "in place, through a view": """
        select: "f32[6][1]cpu" = torch.ops.aten.select.int(x, 0, 1)
        add_: "f32[6][1]cpu" = torch.ops.aten.add_.Tensor(select, 5)
        mul_: "f32[6][1]cpu" = torch.ops.aten.mul_.Tensor(add_, 2)
        neg: "f32[4, 6][6, 1]cpu" = torch.ops.aten.neg.default(x)
        return (neg, add_, select)
    """,
    "an index put in place": """
        full: "i64[2][1]cpu" = torch.ops.aten.full.default([2], 3, dtype = torch.int64)
        row: "f32[6][1]cpu" = torch.ops.aten.select.int(y, 0, 1)
        index_put_: "f32[4, 6][6, 1]cpu" = torch.ops.aten.index_put_.default(x, [full], row)
        return (x, index_put_)
    """,
    "another type": """
        gt: "b8[4, 6][6, 1]cpu" = torch.ops.aten.gt.Scalar(x, 3)
        copy_: "f32[4, 6][6, 1]cpu" = torch.ops.aten.copy_.default(y, gt)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        return (add,)
    """,
}


def _read(body: str, schemas: dict[str, str] | None = None) -> Any:
    graph = functional.read(_HEAD + body, schemas or {})
    assert graph is not None
    return graph


def _run(body: str, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """The same statements with real memory."""
    values: dict[str, Any] = {"torch": torch, "x": x, "y": y}
    for line in body.strip().splitlines():
        text = line.strip().partition(";")[0]
        if text.startswith("return "):
            return list(eval(text.removeprefix("return "), values))
        name, _, call = text.partition(" = ")
        values[name.partition(":")[0]] = eval(call, values)
    raise AssertionError


@pytest.mark.parametrize("name", GRAPHS)
def test_values_are_those_of_real_memory(name: str) -> None:
    graph = _read(GRAPHS[name])
    x, y = X.clone(), X.flip(1) + 100
    evaluator = Evaluator(graph, {"x": exact(x.clone()), "y": exact(y.clone())})
    got = [evaluator.value(one) for one in (*graph.outputs, *graph.finals.values())]
    want = _run(GRAPHS[name], x, y)
    left = {"x": x, "y": y}
    for value, right in zip(got, [*want, *(left[one] for one in graph.finals)], strict=True):
        assert torch.equal(value.value.to(right.dtype), right)
    given = {"x": X, "y": X.flip(1) + 100}
    assert {one for one in left if not torch.equal(left[one], given[one])} <= set(graph.finals)


def test_a_recorded_schema_tells_what_is_written() -> None:
    body = """
        rope_ = torch.ops.own.rope_.default(x, y, 0.5);  rope_ = None
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        return (add,)
    """
    schema = "own::rope_(Tensor q, Tensor(a!) k, float angle) -> ()"
    graph = _read(body, {"own.rope_.default": schema})
    assert graph.nodes["add"].reads == ("x", "y_after_rope_")
    assert dict(graph.finals) == {"y": "y_after_rope_"}
    with pytest.raises(UncheckedError, match="not registered"):
        Evaluator(graph, {"x": exact(X), "y": exact(X)}).value("add")
    known = {"x": exact(X), "y_after_rope_": exact(X)}
    assert torch.equal(Evaluator(graph, known).value("add").value, (X + X).double())


def test_without_a_schema_all_may_be_written() -> None:
    body = """
        update = torch.ops.own.update.default(x, y)
        pure: "f32[4, 6][6, 1]cpu" = torch.ops.own.pure.default(x)
        return (pure,)
    """
    graph = _read(body)
    assert dict(graph.finals) == {"x": "x_after_update", "y": "y_after_update"}
    assert graph.nodes["pure"].reads == ("x_after_update",)


def test_without_a_schema_what_an_operator_changed_is_what_it_writes() -> None:
    body = """
        bump: "f32[4, 6][6, 1]cpu" = torch.ops.own.bump.default(x, 0.5, y)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        return (bump, add)
    """
    assert _read(body).nodes["add"].reads == ("x", "y")
    graph = functional.read(_HEAD + body, {}, {"own.bump.default": frozenset({1})})
    assert graph is not None
    assert graph.nodes["add"].reads == ("x", "y_after_bump")


@pytest.mark.parametrize(
    ("call", "kind", "expected"),
    [
        ("mean.default(x)", "f32[][]cpu", X.mean()),
        ("mean.dim(x, [1], True)", "f32[4, 1][1, 1]cpu", X.mean(1, keepdim=True)),
        ("mean.dim(x, [0, 1], dtype = torch.float64)", "f64[][]cpu", X.mean(dtype=torch.float64)),
    ],
)
def test_a_mean_is_computed_from_its_sum(call: str, kind: str, expected: torch.Tensor) -> None:
    """A kernel may leave the sum, and another one divide it: then that is all that is known."""
    graph = _read(f'        mean: "{kind}" = torch.ops.aten.{call}\n        return (mean,)')
    whole = Evaluator(graph, {"x": exact(X)})
    total = whole.value("mean_sum")
    assert torch.equal(total.value, expected.double() * X.numel() / expected.numel())
    assert torch.allclose(whole.value("mean").value, expected.double(), rtol=1e-15)
    assert graph.statement("mean").startswith("mean = aten.mean.")
    alone = Evaluator(graph, {"mean_sum": exact(total.value.to(torch.float32))})
    assert torch.allclose(alone.value("mean").value, expected.double(), rtol=1e-15)


def test_the_sum_of_a_mean_of_halves_is_a_float() -> None:
    mean = '        mean: "bf16[4][1]cpu" = torch.ops.aten.mean.dim(x, [1])'
    graph = _read(f"{mean}\n        return (mean,)")
    assert graph.nodes["mean_sum"].type == "f32[4][1]cpu"
    assert graph.nodes["mean"].type == "bf16[4][1]cpu"
