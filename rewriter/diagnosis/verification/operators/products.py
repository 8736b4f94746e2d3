"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import (
    LIKELY,
    NARROW,
    Bounded,
    UncheckedError,
    of_sum,
    precision,
    rounded,
)
from rewriter.diagnosis.verification.operators.operands import Given, magnitude_of, names, value_of

PRODUCTS = names(
    "mm bmm addmm baddbmm mv addmv dot convolution convolution_backward matmul linear _grouped_mm"
)

# What CUDA's libraries and Triton may compute in TF32 here: `matmul`, `conv`.
TF32: ContextVar[frozenset[str]] = ContextVar("TF32", default=frozenset())
_TF32_EPS = 2.0**-10  # operands keep 10 bits, and are cut off or rounded


def operand_eps(name: str, given: Given) -> float:
    """How far a library may be off in each operand of a product, relative to it."""
    is_single = all(x.dtype is torch.float32 for x in given if x.is_real)
    kind = "conv" if name.startswith("convolution") else "matmul"
    return _TF32_EPS if is_single and kind in TF32.get() else 0.0


def multiplied(name: str, call: Any, args: Any, given: Given, kind: torch.dtype) -> Any:
    """A product of two factors, or the gradients of a convolution: products of two of three."""
    factors = [x for x in args if isinstance(x, Bounded)]
    is_backward = name == "convolution_backward"
    if not is_backward:
        factors = factors[1:3] if name in ("addmm", "baddbmm", "addmv") else factors[:2]
    value = call(value_of)
    eps = operand_eps(name, factors)
    magnitude, squares = call(magnitude_of), call(_only(factors, torch.square))
    total = call(_only(factors, torch.abs)) if eps else squares
    moved = [(x, call(_bounding(x, factors))) for x in given if x.error is not None]
    if not is_backward:
        second = factors[1].value
        terms = second[0].numel() if name == "convolution" else factors[0].value.shape[-1]
        by_error = [error for _, error in moved]
        return _summed_up(value, magnitude, squares, total, by_error, terms, given, kind, eps)
    gradient, x, weight = factors
    is_transposed = bool(args[7]) if len(args) > 7 else False
    each, of_weight = (
        bounded.value.numel() // max(1, bounded.value.shape[1])
        for bounded in (gradient, x if is_transposed else gradient)
    )
    # What each of the results is a product of, and how many of them it adds.
    made = (
        ((gradient, weight), weight.value.numel() // max(1, x.value.shape[1])),
        ((gradient, x), of_weight),
        ((gradient,), each),
    )
    return tuple(
        result
        if result is None
        else _summed_up(
            result, magnitude[i], squares[i], total[i],
            [error[i] for bounded, error in moved if any(bounded is factor for factor in of)],
            terms, list(of), kind, eps if len(of) > 1 else 0.0,
        )
        for i, (result, (of, terms)) in enumerate(zip(value, made, strict=True))
    )  # fmt: skip


def grouped(args: Any, kwargs: dict[str, Any]) -> Callable[[Callable[[Bounded], Any]], Any]:
    """Calls the formula of `_grouped_mm`, which torch has for types of 16 and 32 bits alone, with
    something in the places of its operands: one product for each group of rows, of columns, or of
    terms, whose ends are its third argument.

    Raises `UncheckedError` for a bias, for ends that rounding decides, and if something is behind
    the last group, which is not written.
    """
    first, second, *rest = args
    ends = rest[0] if rest else kwargs.get("offs")
    if (ends is not None and ends.error is not None) or kwargs.get("bias") is not None:
        raise UncheckedError("_grouped_mm with a bias, or with groups that rounding decides")
    stops = [] if ends is None else [int(x) for x in ends.value.tolist()]
    spans = list(pairwise([0, *stops]))
    shape = (first.value.ndim, second.value.ndim)
    if ends is None and shape != (3, 3):
        raise UncheckedError("_grouped_mm without the ends of its groups")
    whole = {(2, 3): first.value.shape[0], (3, 2): second.value.shape[-1]}.get(shape)
    if whole is not None and stops and stops[-1] != whole:
        raise UncheckedError("behind its last group _grouped_mm writes nothing")

    def call(change: Callable[[Bounded], torch.Tensor]) -> torch.Tensor:
        a, b = change(first), change(second)
        if shape == (3, 3):
            return a @ b
        if shape == (2, 3):
            return torch.cat([a[i:j] @ b[group] for group, (i, j) in enumerate(spans)])
        if shape == (3, 2):
            return torch.cat([a[group] @ b[:, i:j] for group, (i, j) in enumerate(spans)], 1)
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in spans])

    return call


def _summed_up(
    value: torch.Tensor,
    magnitude: torch.Tensor,
    squares: torch.Tensor,
    total: torch.Tensor,
    by_error: list[torch.Tensor],
    terms: int,
    given: Given,
    kind: torch.dtype,
    eps: float,
) -> Bounded:
    """A sum of products: `magnitude` and `squares` are the same sum of absolute values, and of
    squares of the factors, `by_error` what the errors of factors come to."""
    if not value.is_floating_point():
        return rounded(value, None, kind, given)
    narrow = torch.finfo(precision([kind])).eps
    error = of_sum(max(1, terms), magnitude, value, squares) * narrow
    if kind in NARROW:  # libraries add parts of a sum in the type of the result
        error = error + (value.abs() + 4 * squares.sqrt()) * torch.finfo(kind).eps
    through: frozenset[torch.dtype | str] = frozenset()
    if eps:  # of each term; they add up as they may, or walk
        likely = LIKELY * squares.clamp_min(0.0).sqrt()
        error = error + 2 * eps * torch.minimum(total, likely)
        through = frozenset({"TF32"})
    error = sum(by_error, error)
    return rounded(value, error, kind, given, terms=terms, roundings=2.0, through=through)


def _only(factors: Given, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Changes factors, and leaves out what is added to their product."""
    return lambda x: (
        change(x.value) if any(x is factor for factor in factors) else torch.zeros_like(x.value)
    )


def _bounding(uncertain: Bounded, factors: Given) -> Callable[[Bounded], torch.Tensor]:
    """One operand off by its bound, times the other factor; what is added alone is left out."""
    is_factor = any(x is uncertain for x in factors)

    def change(x: Bounded) -> torch.Tensor:
        if x is uncertain:
            return x.bound()
        is_other = is_factor and any(x is factor for factor in factors)
        return x.value.abs() if is_other else torch.zeros_like(x.value)

    return change
