"""Compares what a launch wrote with what it should have written, element by element."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch

from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import HALVES, Bounded, UncheckedError, precision, wide
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.diagnosis.verification.types import Comparison
from rewriter.dump.rows import TensorRow


def compare_recorded(
    got: torch.Tensor,
    row: TensorRow,
    expected: Bounded,
    kind: TensorType | None = None,
    *,
    viewed: bool = False,
) -> Comparison:
    """How the saved tensor of a row differs from a value, in whichever layout they agree.

    `kind` is the type that the graph gives to the value; `viewed` as in `received.layouts`.
    """
    stride = tuple(expected.value.stride()) if kind is None else kind.stride
    laid_out = TensorType(expected.dtype, tuple(expected.value.shape), stride)
    ways = received.layouts(got, row, laid_out, viewed=viewed)
    return _first_agreeing(compare(way, expected) for way in ways)


def compare_node(
    got: torch.Tensor, row: TensorRow, name: str, evaluator: Evaluator, *, viewed: bool = False
) -> Comparison:
    """How the saved tensor of a row differs from a node, or from the view of it that it is."""
    if members := evaluator.held_as(name, row):
        return _first_agreeing(compare(got, value_of(member, evaluator)) for member in members)
    expected = value_of(name, evaluator)
    return compare_recorded(got, row, expected, evaluator.type_of(name), viewed=viewed)


def value_of(name: str, evaluator: Evaluator) -> Bounded:
    """The value of a node that is a tensor. Raises `UncheckedError`."""
    value = evaluator.value(name)
    if not isinstance(value, Bounded):
        raise UncheckedError(f"{name} is no tensor")
    return value


def _first_agreeing(comparisons: Iterable[Comparison]) -> Comparison:
    several = iter(comparisons)
    first = next(several)
    return next((comparison for comparison in chain([first], several) if comparison.agrees), first)


def compare(got: torch.Tensor, expected: Bounded) -> Comparison:
    """How a tensor differs from the value that it should have; both have the same shape."""
    if not got.numel():
        return Comparison(0, 0)
    is_real = got.is_floating_point() or got.is_complex()
    value, wrong, unsure, excess, allowed = (_within if is_real else _exactly)(got, expected)
    why = reason(expected, got.dtype) if is_real else f"{_name(got.dtype)} is exact"
    flat = int(excess.reshape(-1).argmax())
    at = tuple(int(x) for x in torch.unravel_index(torch.tensor(flat), got.shape))
    ends = (tensor.reshape(-1)[flat] for tensor in (value, wide(got), allowed))
    wants, has, most = (float(end.abs() if end.is_complex() else end) for end in ends)
    return Comparison(int(wrong.sum()), got.numel(), int(unsure.sum()), at, wants, has, most, why)


# What a tensor should be, which elements are wrong, which have no tolerance, how far each exceeds
# its tolerance, compared with others, and that tolerance.
_Elements = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _within(got: torch.Tensor, expected: Bounded) -> _Elements:
    dtype, wrote = got.dtype, wide(got)
    value = expected.value.to(wrote.dtype)
    facts = torch.finfo(dtype)
    bound = expected.bound()
    allowed = bound + (value.abs() + bound) * facts.eps + facts.tiny
    if expected.unrounded is not None and expected.dtype == dtype in HALVES:
        # Half a step, and a little, as it may be rounded to float32 before.
        once = expected.unrounded + (value.abs() + expected.unrounded) * facts.eps * 0.51
        allowed = torch.minimum(allowed, once + facts.smallest_normal * facts.eps)
    if not value.is_complex():
        value = torch.where(value.abs() > facts.max, value.sign() * torch.inf, value)
    # Of a NaN, too: `0 / sum(a == b)` is one where rounding decides the comparison.
    unsure = ~torch.isfinite(bound) | (~torch.isfinite(allowed) & torch.isfinite(value.abs()))
    allowed = torch.where(torch.isfinite(value.abs()), allowed, 0.0)
    error = (wrote - value).abs()
    same = (wrote == value) | (wrote.isnan() & value.isnan()) | (error <= allowed) | unsure
    # A value near the largest number of the type may be rounded to infinity.
    edge = wrote.abs().isinf() & (value.abs() + allowed >= facts.max)
    wrong = ~(same | edge)
    excess = error / allowed.clamp_min(1e-300)
    if bool(wrong.any()):
        excess = torch.where(wrong, excess.nan_to_num(torch.inf, torch.inf), -1.0)
    else:
        excess = torch.where(unsure, 0.0, excess.nan_to_num(0.0, 0.0, 0.0))
    return value, wrong, unsure, excess, allowed


def _exactly(got: torch.Tensor, expected: Bounded) -> _Elements:
    value = expected.value.to(got.dtype)
    unsure = expected.bound() > 0
    wrong = (got != value) & ~unsure
    return value, wrong, unsure, wrong.to(torch.uint8), torch.zeros(()).expand(got.shape)


def reason(expected: Bounded, dtype: torch.dtype) -> str:
    """Explains the tolerance, in words."""
    kind = precision([expected.dtype, dtype])
    parts = [f"rounding of {_name(kind)} in {expected.steps or 1} steps"]
    if expected.terms > 1:
        parts.append(f"sums of {expected.terms:,}")
    narrow: set[torch.dtype | str] = {*expected.through, *({dtype} if dtype != kind else set())}
    parts += [f"conversion to {_name(narrower)}" for narrower in sorted(narrow, key=str)]
    return ", ".join(parts)


def _name(dtype: torch.dtype | str) -> str:
    return str(dtype).removeprefix("torch.")
