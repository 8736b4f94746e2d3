"""Operators without a rule: evaluated on values that are off by a little, in a few draws; attention
by its formula, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import (
    NARROW,
    Bounded,
    UncheckedError,
    in_short,
    precision,
    rounded,
)
from rewriter.diagnosis.verification.operators.operands import Given, apart, is_uncertain, value_of

# Operators of libraries that have a formula.
ATTENTION = frozenset(
    f"_scaled_dot_product_{kind}_attention{end}"
    for kind in ("efficient", "cudnn", "flash")
    for end in ("", "_backward")
)
_DRAWS, _MANY = 3, 16  # many where a draw shows no distance, but only that something changed
_Change = Callable[[Bounded], Any]


def sampled(call: Any, given: Given, kind: torch.dtype, *, eps: float = 0.0) -> Any:
    """Of an operator without a rule: how far its result goes if what it reads is off by a rounding
    or by its bound, in a few draws, and how far it is in the program's own precision."""
    if is_uncertain(given):
        raise UncheckedError("it depends on a comparison that rounding decides")
    try:
        value = call(value_of)
    except (RuntimeError, NotImplementedError) as error:
        problem = f"it has no implementation in float64 on the CPU: {in_short(error)}"
        raise UncheckedError(problem) from error
    if not isinstance(value, (torch.Tensor, tuple, list)):
        return value  # a number, such as that of `item`
    narrow = precision([x.dtype for x in given if x.is_real] or [kind])
    # Libraries keep what lies between in the type of the operands.
    half = [torch.finfo(x.dtype).eps for x in given if x.dtype in NARROW]
    eps = max([eps, torch.finfo(narrow).eps, *half])
    generator = torch.Generator().manual_seed(0)

    def shaken(one: Bounded) -> torch.Tensor:
        if not one.is_real:
            return one.value
        signs = torch.rand(one.value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        # Where the bound is infinite, the result is, or is no number, if it depends on it. The -Inf
        # of a mask is what it is.
        rounding = torch.where(one.value.isinf(), 0.0, one.value.abs() * eps)
        return one.value + signs * (one.bound() + rounding)

    results = [value] if isinstance(value, torch.Tensor) else value
    is_known = all(x.error is None for x in given)
    is_chosen = not is_known and any(
        isinstance(x, torch.Tensor) and not _rounds(x) for x in results
    )
    others = [call(shaken) for _ in range(_MANY if is_chosen else _DRAWS)]
    terms = max((x.value.shape[-1] for x in given if x.value.ndim), default=1)

    def made(one: torch.Tensor, rest: Any) -> Bounded:
        if not _rounds(one) and is_known:
            return rounded(one, None, one.dtype, given)
        if any(other.shape != one.shape for other in rest):  # such as that of `nonzero`
            raise UncheckedError("rounding decides how many elements it has")
        far = torch.stack([apart(one, other) for other in rest]).amax(0)
        if not _rounds(one):  # such as the place of a value among others that are as large
            return rounded(one, far, one.dtype, given)
        dtype = kind
        if one.is_complex() != kind.is_complex:
            complex_ = torch.complex64 if narrow is torch.float32 else torch.complex128
            dtype = complex_ if one.is_complex() else narrow
        # How far one element moves is chance: each may move as far as several do on average.
        several = 8 * math.sqrt(terms)
        known = far[torch.isfinite(far)]
        if known.numel():
            far = torch.maximum(8 * far, known.mean() * several)
        return rounded(one, far, dtype, given, roundings=several, terms=terms)

    if isinstance(value, (tuple, list)):
        return tuple(made(x, [o[i] for o in others]) if isinstance(x, torch.Tensor) else x
                     for i, x in enumerate(value))  # fmt: skip
    return made(value, others)


def _rounds(one: torch.Tensor) -> bool:
    return one.is_floating_point() or one.is_complex()


def attention(operator: Any, args: Any, kwargs: dict[str, Any]) -> Callable[[_Change], Any]:
    """Calls the formula of an attention, which libraries compute in operators of a device, with
    something in the places of the operator's values.

    Of a forward the result is the first; what it keeps for its backward is in the form of the
    library, and is not judged. Raises `UncheckedError` if elements are dropped.
    """
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("dropout_p"):
        raise UncheckedError("attention with dropout draws random numbers")

    scale, gradient = given.get("scale"), given.get("grad_out", given.get("grad_out_"))

    def call(change: _Change) -> Any:
        query, key, value = (change(given[name]) for name in ("query", "key", "value"))
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = query @ key.transpose(-2, -1) * factor
        if given.get("attn_bias") is not None:
            scores = scores + change(given["attn_bias"])
        if given.get("is_causal"):
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        if gradient is None:
            return (scores.softmax(-1) @ value,)
        # By what the forward has left, which the launch was given, too.
        sums = change(given["logsumexp"])
        sums = (sums.squeeze(-1) if sums.ndim == query.ndim else sums)[..., : query.shape[-2]]
        weights = (scores - sums.unsqueeze(-1)).exp()
        towards = change(gradient)
        mean = (towards * change(given["out"])).sum(-1, keepdim=True)
        inner = weights * (towards @ value.transpose(-2, -1) - mean) * factor
        back = inner.transpose(-2, -1) @ query
        return inner @ key, back, weights.transpose(-2, -1) @ towards

    return call
