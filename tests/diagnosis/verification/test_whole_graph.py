"""Launches that are checked together with another one, which left them a value that is no node."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graph_calls import GraphCall
from rewriter.diagnosis.verification.types import node_of

_GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4][1]cpu", y: "f32[4][1]cpu"):
        neg: "f32[4][1]cpu" = torch.ops.aten.neg.default(y)
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(x, y)
        return (neg, mul)
"""
_X, _Y = torch.arange(4.0) + 1, torch.arange(4.0) + 5
_RIGHT = {"buf1": -_Y, "buf2": _X * _Y}


@pytest.mark.parametrize(("wrong", "group"), [("buf1", ()), ("buf2", (0,))])
def test_a_launch_is_accused_with_another_one_only_of_what_is_made_of_its_value(
    wrong: str, group: tuple[int, ...], tmp_path: Path
) -> None:
    claims = {("buf1", 1): "neg", ("buf2", 1): "mul"}
    call = GraphCall(tmp_path, _GRAPH, {"x": _X, "y": _Y}, claims=claims)
    part = {"buf0": _X + 3}
    assert call.launch({"x": _X}, part).unknown == ["buf0"]
    outcome = call.launch({**part, "y": _Y}, {**_RIGHT, wrong: _RIGHT[wrong] + 1})
    assert [x.arg for x in outcome.results if not x.agrees] == [wrong]
    assert outcome.group == group


def test_a_tensor_that_is_passed_as_a_number_is_known(tmp_path: Path) -> None:
    """On a GPU, such as the step of an optimizer, which is on the CPU."""
    claims = {("buf1", 0): "neg", ("buf2", 0): "mul"}
    call = GraphCall(tmp_path, _GRAPH, {"x": _X, "y": _Y}, claims=claims)
    outcome = call.launch({"x": _X, "y": _Y}, {**_RIGHT, "buf2": _X}, numbers=["y"])
    assert [(x.arg, x.agrees) for x in outcome.results] == [("buf1", True), ("buf2", False)]


def test_what_should_be_a_copy_of_an_input_that_it_is_not_given_is_unknown(tmp_path: Path) -> None:
    call = GraphCall(tmp_path, _GRAPH, {"x": _X, "y": _Y}, claims={("buf0", 0): "x"})
    assert call.launch({"y": _Y}, {"buf0": _X + 3}).unknown == ["buf0"]


_PRODUCTS = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu", v: "f32[4, 4][4, 1]cpu", w: "f32[4, 4][4, 1]cpu"):
        relu: "f32[4, 4][4, 1]cpu" = torch.ops.aten.relu.default(x)
        mm: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(relu, w)
MORE        return (mm, v)
"""
_SECOND = """\
        mm_1: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(mm, v)
"""


@pytest.mark.parametrize(
    ("more", "found"),
    [
        pytest.param("", [("mm", False)], id="of another tensor"),
        # A kernel may compute one of the products, and what is called be a part of another node.
        pytest.param(_SECOND, [], id="fewer calls than nodes"),
    ],
)
def test_an_operator_is_a_call_of_a_node(
    more: str, found: list[tuple[str, bool]], tmp_path: Path
) -> None:
    """Its result is what it computes of what it is given, which may be what no node reads."""
    given = dict(zip("xvw", torch.randn(3, 4, 4), strict=True))
    call = GraphCall(tmp_path, _PRODUCTS.replace("MORE", more), given)
    about = {"kernel": "extern_kernels.mm", "kind": "extern_out"}
    relu = {"buf0": given["x"].relu()}
    call.launch({"x": given["x"]}, relu)
    outcome = call.launch({**relu, "v": given["v"]}, {"buf1": relu["buf0"] @ given["v"]}, **about)
    assert [(node_of(x.claim), x.agrees) for x in outcome.results] == found
    assert outcome.route == ("arguments" if found else "graph")
