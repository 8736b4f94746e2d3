"""Conditions, loops and calls of graphs inside of a graph, evaluated from its inputs."""

from __future__ import annotations

import pytest
import torch

from rewriter.diagnosis.verification import functional
from rewriter.diagnosis.verification.bounded import UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator

_GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[3][1]cpu", n: "i64[][]cpu"):
        w: "f32[3][1]cpu" = self.w
        sum_1: "f32[][]cpu" = torch.ops.aten.sum.default(x)
        gt: "b8[][]cpu" = torch.ops.aten.gt.Scalar(sum_1, 0)
        a = self.a
        b = self.b
        cond = torch.ops.higher_order.cond(gt, a, b, (x, w))
        got: "f32[3][1]cpu" = cond[0];  cond = None
        before = self.before
        body = self.body
        while_loop = torch.ops.higher_order.while_loop(before, body, (n, got), (x,))
        count: "i64[][]cpu" = while_loop[0]
        looped: "f32[3][1]cpu" = while_loop[1];  while_loop = None
        invoke_subgraph = torch.ops.higher_order.invoke_subgraph(a, 'a', looped, x)
        last: "f32[3][1]cpu" = invoke_subgraph[0];  invoke_subgraph = None
        return (last, count)

    class a(torch.nn.Module):
        def forward(self, y: "f32[3][1]cpu", v: "f32[3][1]cpu"):
            neg: "f32[3][1]cpu" = torch.ops.aten.neg.default(y)
            return (neg,)

    class b(torch.nn.Module):
        def forward(self, y: "f32[3][1]cpu", v: "f32[3][1]cpu"):
            mul: "f32[3][1]cpu" = torch.ops.aten.mul.Tensor(y, v)
            return (mul,)

    class before(torch.nn.Module):
        def forward(self, i: "i64[][]cpu", y: "f32[3][1]cpu", z: "f32[3][1]cpu"):
            lt: "b8[][]cpu" = torch.ops.aten.lt.Scalar(i, 3)
            return lt

    class body(torch.nn.Module):
        def forward(self, i: "i64[][]cpu", y: "f32[3][1]cpu", z: "f32[3][1]cpu"):
            add: "i64[][]cpu" = torch.ops.aten.add.Tensor(i, 1)
            add_1: "f32[3][1]cpu" = torch.ops.aten.add.Tensor(y, z)
            return (add, add_1)
"""
_X, _W = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 3.0, 5.0])


def _evaluator(
    x: torch.Tensor, n: int, w: torch.Tensor | None = None, text: str = _GRAPH
) -> Evaluator:
    graph = functional.read(text, {})
    assert graph is not None
    known = {"x": exact(x), "n": exact(torch.tensor(n))}
    known |= {} if w is None else {"w": exact(w)}
    return Evaluator(graph, known, {}, functional.subgraphs(text, {}))


@pytest.mark.parametrize(
    ("x", "n", "last", "count"),
    [
        (_X, 0, _X - 3 * _X, 3),
        (_X, 3, _X, 3),  # no turn
        (-_X, 1, _X * _W + 2 * _X, 3),
    ],
)
def test_the_way_that_is_taken(x: torch.Tensor, n: int, last: torch.Tensor, count: int) -> None:
    evaluator = _evaluator(x, n, _W)
    assert torch.allclose(evaluator.value("last").value, last.double())
    assert evaluator.value("count").value.item() == count


def test_a_weight_that_only_the_other_branch_reads_need_not_be_known() -> None:
    assert torch.equal(_evaluator(_X, 3).value("got").value, -_X.double())
    with pytest.raises(UncheckedError, match="v is not known"):
        _evaluator(-_X, 3).value("got")


def test_graphs_in_a_branch_may_have_the_names_of_others() -> None:
    """Inductor counts them anew in each."""
    plain = """            neg: "f32[3][1]cpu" = torch.ops.aten.neg.default(y)
            return (neg,)
"""
    nested = """            all_1: "b8[][]cpu" = torch.ops.aten.all.default(y)
            a = self.a
            b = self.b
            cond = torch.ops.higher_order.cond(all_1, a, b, (y, v))
            neg: "f32[3][1]cpu" = cond[0]
            return (neg,)

        class a(torch.nn.Module):
            def forward(self, y: "f32[3][1]cpu", v: "f32[3][1]cpu"):
                sin: "f32[3][1]cpu" = torch.ops.aten.sin.default(y)
                return (sin,)

        class b(torch.nn.Module):
            def forward(self, y: "f32[3][1]cpu", v: "f32[3][1]cpu"):
                cos: "f32[3][1]cpu" = torch.ops.aten.cos.default(y)
                return (cos,)
"""
    assert plain in _GRAPH
    text = _GRAPH.replace(plain, nested)
    part = torch.tensor([0.0, 2.0, 3.0])
    for x, expected in ((_X, _X.sin()), (part, part.cos()), (-_X, -_X * _W)):
        assert torch.allclose(_evaluator(x, 3, _W, text).value("got").value, expected.double())


@pytest.mark.parametrize(
    ("x", "n", "reason"),
    [
        (torch.tensor([1e-9, 1.0, -1.0]), 3, "rounding decides which way it goes"),
        (_X, -2_000, "a loop has more than 1000 turns"),
    ],
)
def test_what_is_not_known_says_why(x: torch.Tensor, n: int, reason: str) -> None:
    with pytest.raises(UncheckedError, match=reason):
        _evaluator(x, n, _W).value("last")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("class before", "class a", "self.a cannot be evaluated"),
        ("while_loop(", "while_loop_stack_output(", "stack_output.* cannot be evaluated"),
    ],
)
def test_what_could_be_another_graph_or_operator_is_not_evaluated(
    old: str, new: str, reason: str
) -> None:
    with pytest.raises(UncheckedError, match=reason):
        _evaluator(_X, 0, _W, _GRAPH.replace(old, new)).value("last")
