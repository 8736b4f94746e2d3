"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rewriter.verification.bounded import NARROW, Bounded, of_sum, precision, rounded
from rewriter.verification.operators.operands import Given, magnitude_of, names, value_of

PRODUCTS = names("mm bmm addmm baddbmm mv addmv dot convolution matmul linear")


def multiplied(name: str, call: Any, args: Any, given: Given, kind: torch.dtype) -> Bounded:
    value = call(value_of)
    if not value.is_floating_point():
        return rounded(value, None, kind, given)
    factors = [x for x in args if isinstance(x, Bounded)]
    factors = factors[1:3] if name in ("addmm", "baddbmm", "addmv") else factors[:2]
    second = factors[1].value
    terms = second[0].numel() if name == "convolution" else factors[0].value.shape[-1]
    narrow = torch.finfo(precision([kind])).eps
    squares = call(_only(factors, torch.square))
    error = of_sum(max(1, terms), call(magnitude_of), value, squares) * narrow
    if kind in NARROW:  # libraries add parts of a sum in the type of the result
        error = error + (value.abs() + 4 * squares.sqrt()) * torch.finfo(kind).eps
    for uncertain in given:
        if uncertain.error is not None:
            error = error + call(_bounding(uncertain, factors))
    return rounded(value, error, kind, given, terms=terms, roundings=2.0)


def _only(factors: Given, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Changes factors, and leaves out what is added to their product."""
    return lambda x: (
        change(x.value) if any(x is one for one in factors) else torch.zeros_like(x.value)
    )


def _bounding(uncertain: Bounded, factors: Given) -> Callable[[Bounded], torch.Tensor]:
    """One operand off by its bound, times the other factor; what is added alone is left out."""
    is_factor = any(x is uncertain for x in factors)

    def change(x: Bounded) -> torch.Tensor:
        if x is uncertain:
            return x.bound()
        is_other = is_factor and any(x is one for one in factors)
        return x.value.abs() if is_other else torch.zeros_like(x.value)

    return change
