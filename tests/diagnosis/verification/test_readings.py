"""Values that depend on few roundings to a half type, which a kernel makes or leaves out."""

from __future__ import annotations

import pytest
import torch

from rewriter.diagnosis.verification.bounded import READING, Bounded, exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.judge import compare
from rewriter.diagnosis.verification.readings import between
from rewriter.model_names.graph import parse

_HEAD = """\
def forward(self, x: "bf16[24, 48]", y: "bf16[24, 48]"):
    add: "bf16[24, 48]" = torch.ops.aten.add.Tensor(x, y)
    wide: "f32[24, 48]" = torch.ops.prims.convert_element_type.default(add, torch.float32)
"""
_SQUARES = """\
    mul: "f32[24, 48]" = torch.ops.aten.mul.Tensor(wide, wide)
    out: "f32[24]" = torch.ops.aten.sum.dim_IntList(mul, [-1])
    return (out,)
"""
# Two nodes read it, and maybe two loops.
_TWICE = """\
    mul: "f32[24, 48]" = torch.ops.aten.mul.Tensor(wide, 2.0)
    sub: "f32[24, 48]" = torch.ops.aten.sub.Tensor(mul, wide)
    out: "f32[24]" = torch.ops.aten.sum.dim_IntList(sub, [-1])
    return (out,)
"""
_AGAIN = _SQUARES.replace(
    "(wide, wide)\n", "(wide, wide)\n"
    '    half: "bf16[24, 48]" = torch.ops.prims.convert_element_type.default(mul, torch.bfloat16)\n'
).replace("(mul, [", "(half, [")  # fmt: skip
_OFTEN = "".join(
    f"""\
    half{n}: "bf16[24, 48]" = torch.ops.prims.convert_element_type.default({x}, torch.bfloat16)
    wide{n}: "f32[24, 48]" = torch.ops.prims.convert_element_type.default(half{n}, torch.float32)
"""
    for n, x in enumerate(("wide", "wide0", "wide1"))
) + _SQUARES.replace("wide", "wide2")
_LOOPS = """\
    out: "f32[24]" = torch.ops.aten.var.correction(wide, [-1])
    return (out,)
"""


def _values() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(24, 48, generator=generator).bfloat16() for _ in range(2))
    return x, y


def _between(body: str) -> Bounded | None:
    graph = parse(_HEAD + body)
    assert graph is not None
    x, y = _values()
    known = {"x": exact(x), "y": exact(y)}
    found: Bounded | None = between(graph, known, {}, "out")
    assert not READING.get()
    if found is not None:  # it is stricter than the bound of both
        either = Evaluator(graph, known).value("out")
        assert bool((found.bound() < either.bound() / 8).all())
    return found


@pytest.mark.parametrize("body", [_OFTEN, _LOOPS])
def test_what_may_be_rounded_in_part_has_no_two_readings(body: str) -> None:
    assert _between(body) is None


def test_both_readings_agree_and_what_is_between_them() -> None:
    expected = _between(_SQUARES)
    assert expected is not None
    x, y = _values()
    kept = (x.float() + y.float()).square().sum(-1)
    rounded = (x + y).float().square().sum(-1)
    for value in (kept, rounded, (kept + rounded) / 2):
        assert compare(value, expected).agrees


def test_every_way_of_two_roundings_agrees() -> None:
    expected = _between(_AGAIN)
    assert expected is not None
    x, y = _values()
    for first in (x.float() + y.float(), (x + y).float()):
        for squares in (first.square(), first.square().bfloat16().float()):
            assert compare(squares.sum(-1), expected).agrees
            assert not compare(squares.sum(-1) * 1.01, expected).agrees


def test_a_sum_of_low_precision_is_neither() -> None:
    expected = _between(_SQUARES)
    assert expected is not None
    x, y = _values()
    squares, total = (x.float() + y.float()).square(), torch.zeros(24)
    for column in squares.unbind(-1):
        total = (total + column).bfloat16().float()
    assert not compare(total, expected).agrees
    assert not compare(squares.sum(-1) * 1.0001, expected).agrees


def test_each_use_may_be_rounded_or_not() -> None:
    expected = _between(_TWICE)
    assert expected is not None
    x, y = _values()
    both = (x.float() + y.float(), (x + y).float())
    for first in both:
        for second in both:
            assert compare((first * 2 - second).sum(-1), expected).agrees
            assert not compare((first * 2.01 - second).sum(-1), expected).agrees
