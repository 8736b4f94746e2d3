"""Sums, means and variances."""

from __future__ import annotations

import math
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import (
    Bounded,
    of_sum,
    precision,
    rounded,
    roundings_of,
)
from rewriter.diagnosis.verification.operators.operands import (
    Given,
    bound_of,
    magnitude_of,
    names,
    square_of,
    value_of,
)

# What sums elements, or weighs them by numbers that are exact.
SUMS = names("sum mean cumsum avg_pool2d _adaptive_avg_pool2d scatter_add index_add")


def summed(name: str, call: Any, args: Any, given: Given, kind: torch.dtype) -> Bounded:
    value = call(value_of)
    if not value.is_floating_point():
        source = given[0]
        if source.error is None:
            return rounded(value, None, kind, given)
        uncertain = call(lambda x: x.bound() if x is source else x.value)
        return rounded(value, torch.where(uncertain > 0, torch.inf, 0.0), kind, given)
    terms = max(1, given[0].value.numel() // max(1, value.numel()))
    if value.shape == given[0].value.shape:  # a running sum, or a scatter: any may take them all
        terms = max([*value.shape, 1])
    scale = terms if name == "mean" else 1  # a mean is bounded as its sum
    largest = _partial_sums(name, args, given[0].value)
    largest = value.abs() * scale if largest is None else largest.reshape(value.shape)
    units = of_sum(terms, call(magnitude_of) * scale, largest, call(square_of) * scale)
    error = units / scale * torch.finfo(precision([kind])).eps
    if any(bounded.error is not None for bounded in given):
        error = error + call(bound_of)
    return rounded(value, error, kind, given, terms=terms)


def _partial_sums(name: str, args: Any, x: torch.Tensor) -> torch.Tensor | None:
    """The largest partial sum of each sum, in the order of the elements."""
    if name not in ("sum", "mean") or not x.ndim or not x.numel():
        return None
    dims = args[1] if len(args) > 1 and args[1] else list(range(x.ndim))
    dims = [dim % x.ndim for dim in ([dims] if isinstance(dims, int) else dims)]
    kept = [number for number in range(x.ndim) if number not in dims]
    return x.permute(kept + dims).flatten(len(kept)).cumsum(-1).abs().amax(-1)


def variance(name: str, call: Any, args: Any, kwargs: Any, x: Bounded, kind: torch.dtype) -> Any:
    value = call(value_of)
    spread = value[0] if name == "var_mean" else value
    dims = args[1] if len(args) > 1 and args[1] is not None else list(range(x.value.ndim))
    dims = [dims] if isinstance(dims, int) else list(dims)
    terms = math.prod(x.value.shape[dim] for dim in dims)
    correction = kwargs.get("correction", 1)
    narrow = torch.finfo(precision([kind])).eps
    mean = x.value.mean(dims, keepdim=True)
    factor = roundings_of(terms) * narrow
    total, squares = (
        tensor.sum(dims, keepdim=True) for tensor in (x.value.abs(), x.value.square())
    )
    off = x.bound().mean(dims, keepdim=True)
    off = off + of_sum(terms, total, mean * terms, squares) / terms * narrow
    away = (x.value - mean).abs()
    # Each difference is off by what it is made of; the error of the mean counts squared, too.
    each = 2 * away * (x.bound() + away * narrow + narrow * x.value.abs()) + off**2
    left = max(1.0, terms - (1 if correction is None else float(correction)))
    own = (each + away**2 * factor).sum(dims, keepdim=True) / left
    if name == "std":
        own = own / (2 * spread.reshape(own.shape)).clamp_min(1e-300)
        own = torch.minimum(own, own.sqrt() + spread.reshape(own.shape))
    variance = rounded(spread, own.reshape(spread.shape), kind, [x], terms=terms, roundings=4.0)
    if name != "var_mean":
        return variance
    middle = rounded(value[1], off.reshape(value[1].shape), kind, [x], terms=terms, roundings=2.0)
    return variance, middle
