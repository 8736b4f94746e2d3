"""Which view of a node a recorded tensor is, by its shape, its strides and its values."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from graph_calls import GraphCall
from rewriter.diagnosis.verification import functional
from rewriter.diagnosis.verification.bounded import exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.graph_types import Literals
from rewriter.diagnosis.verification.judge import compare_node
from rewriter.diagnosis.verification.whole_graph import GraphOutcome
from rewriter.dump.rows import TensorRow

_GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu"):
        mul: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        permute: "f32[4, 4][1, 4]cpu" = torch.ops.aten.permute.default(mul, [1, 0])
        return (permute,)
"""
X = torch.arange(16.0).reshape(4, 4)


def _row(tensor: torch.Tensor) -> TensorRow:
    kept = {"shape": tuple(tensor.shape), "stride": tuple(tensor.stride())}
    return TensorRow(phase="after", arg="buf0", role="out", dtype="float32", **kept)


def test_a_square_value_may_be_itself_or_its_transpose() -> None:
    graph = functional.read(_GRAPH, {})
    assert graph is not None
    evaluator = Evaluator(graph, {"x": exact(X)})
    transposed = (2 * X).t()  # as the graph lets it lie
    itself = torch.empty_strided((4, 4), (1, 4)).copy_(2 * X)  # as Inductor may lay it out
    assert transposed.stride() == itself.stride()
    for right in (transposed, itself):
        assert evaluator.held_as("mul", _row(right)) == ["permute", "mul"]
        assert compare_node(right, _row(right), "mul", evaluator).agrees
    wrong = torch.empty_strided((4, 4), (1, 4)).copy_((2 * X).flip(0))
    assert not compare_node(wrong, _row(wrong), "mul", evaluator).agrees
    # One that lies as the graph says is what the graph says.
    assert evaluator.held_as("mul", _row(2 * X)) == ["mul"]
    assert not compare_node(transposed.contiguous(), _row(2 * X), "mul", evaluator).agrees


_AGAIN = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu"):
        mul: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        permute: "f32[4, 4][1, 4]cpu" = torch.ops.aten.permute.default(mul, [1, 0])
        add: "f32[4, 4][4, 1]cpu" = torch.ops.aten.add.Tensor(permute, x)
        gt: "b8[4, 4][4, 1]cpu" = torch.ops.aten.gt.Scalar(add, 20)
        return (add, gt)
"""


def _claims(outcome: GraphOutcome) -> list[tuple[str, bool]]:
    return [(x.claim.partition(" ")[0], x.comparison.agrees) for x in outcome.results]


def test_a_variable_with_the_memory_of_a_square_one_may_be_its_transpose(tmp_path: Path) -> None:
    call = GraphCall(tmp_path, _AGAIN, {"x": X})
    assert _claims(call.launch({"x": X}, {"buf0": 2 * X})) == [("mul", True)]
    buf1 = (2 * X).t()  # reinterpret_tensor(buf0, (4, 4), (1, 4), 0); del buf0  # reuse
    given, written = {"buf1": buf1, "x": X}, {"buf2": buf1 + X}
    assert _claims(call.launch(given, written, buffers={"buf1": "buf0"})) == [("add", True)]


def test_a_condition_is_told_by_its_values(tmp_path: Path) -> None:
    call = GraphCall(tmp_path, _AGAIN, {"x": X})
    assert _claims(call.launch({"x": X}, {"buf2": (2 * X).t() + X > 20})) == [("gt", True)]


@pytest.mark.parametrize(("text", "value"), [("1 + 2j", 1 + 2j), ("-2j * 3", -6j)])
def test_complex_numbers_are_numbers(text: str, value: complex) -> None:
    assert Literals({}).of(ast.parse(text, mode="eval").body) == value
