"""Launches that are checked together with another one, which left them a value that is no node."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graph_calls import GraphCall

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
