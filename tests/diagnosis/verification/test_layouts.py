"""Which view of a node a recorded tensor is, by its shape, its strides and its values."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from rewriter.diagnosis.verification import functional
from rewriter.diagnosis.verification.bounded import exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.graph_types import Literals
from rewriter.diagnosis.verification.judge import compare_node
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.whole_graph import WholeGraph
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch

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


class _Call:
    """A call whose launches wrote tensors, as a dump has it."""

    def __init__(self, run: Path) -> None:
        graph = functional.read(_AGAIN, {})
        assert graph is not None
        self._path = run
        row = self.row("x", X)
        self._run: Any = SimpleNamespace(path=run)
        self._whole = WholeGraph(graph, {}, self._run, {"x": row}, {})

    def row(self, name: str, tensor: torch.Tensor) -> TensorRow:
        torch.save(tensor, self._path / f"{name}.pt")
        dtype = str(tensor.dtype).removeprefix("torch.")
        return msgspec.structs.replace(_row(tensor), arg=name, dtype=dtype, file=f"{name}.pt")

    def launch(
        self, index: int, given: dict[str, torch.Tensor], written: dict[str, torch.Tensor]
    ) -> list[tuple[str, bool]]:
        """The claims of what a launch wrote. `buf1` is the memory of `buf0`."""
        args = [
            Argument(x, x, "buf0" if x == "buf1" else x, "in" if x in given else "out", "tensor")
            for x in (*given, *written)
        ]
        launch = Launch(index, "", "cpp_fused_0", "cpp", 1, tuple(args), (), (), None)  # type: ignore[arg-type]
        rows = [{name: self.row(name, x) for name, x in side.items()} for side in (given, written)]
        outcome = self._whole.check(LaunchValues(self._run, launch, *rows))
        return [(x.claim.partition(" ")[0], x.comparison.agrees) for x in outcome.results]


def test_a_variable_with_the_memory_of_a_square_one_may_be_its_transpose(tmp_path: Path) -> None:
    call = _Call(tmp_path)
    assert call.launch(0, {"x": X}, {"buf0": 2 * X}) == [("mul", True)]
    buf1 = (2 * X).t()  # reinterpret_tensor(buf0, (4, 4), (1, 4), 0); del buf0  # reuse
    assert call.launch(1, {"buf1": buf1, "x": X}, {"buf2": buf1 + X}) == [("add", True)]


def test_a_condition_is_told_by_its_values(tmp_path: Path) -> None:
    call = _Call(tmp_path)
    assert call.launch(0, {"x": X}, {"buf2": (2 * X).t() + X > 20}) == [("gt", True)]


@pytest.mark.parametrize(("text", "value"), [("1 + 2j", 1 + 2j), ("-2j * 3", -6j)])
def test_complex_numbers_are_numbers(text: str, value: complex) -> None:
    assert Literals({}).of(ast.parse(text, mode="eval").body) == value
