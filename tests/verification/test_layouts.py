"""Which view of a node a recorded tensor is, by its shape, its strides and its values."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from rewriter.dump.rows import TensorRow
from rewriter.verification import functional
from rewriter.verification.bounded import exact
from rewriter.verification.evaluate import Evaluator
from rewriter.verification.judge import compare_node

_GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu"):
        mul: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2)
        permute: "f32[4, 4][1, 4]cpu" = torch.ops.aten.permute.default(mul, [1, 0])
        return (permute,)
"""
X = torch.arange(16.0).reshape(4, 4)


def _row(tensor: torch.Tensor) -> TensorRow:
    return TensorRow(
        phase="after", arg="buf0", role="out", dtype="float32", shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()), device="cpu",
    )  # fmt: skip


def test_a_square_value_may_be_itself_or_its_transpose() -> None:
    graph = functional.read(SimpleNamespace(table={}), _GRAPH)  # type: ignore[arg-type]
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
