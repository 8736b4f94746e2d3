"""What is computed of each element by itself, and conversions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import (
    HALVES,
    NARROW,
    READING,
    Bounded,
    as_read,
    flat,
    precision,
    rounded,
    wide_type,
)  # fmt: skip
from rewriter.diagnosis.verification.operators.operands import (
    apart,
    caller,
    ends_of,
    names,
    replacing,
    value_of,
)

# Of these, what a kernel computes is the rounded result of exact operands, or one of them.
_EXACT = names(
    """abs neg maximum minimum where relu clamp clamp_min clamp_max eq ne lt le gt ge sign floor
    ceil round trunc logical_not logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_not masked_fill isnan isinf fill threshold real imag conj"""
)
_FEW = names("add sub mul div reciprocal sqrt square rsub lerp addcmul addcdiv")
# Of these, a result that is 0 without rounding is 0 with it, as `x - x` is.
_THROUGH_ZERO = _EXACT | _FEW - {"lerp"} | names("asin asinh atan atanh log1p sin sinh tan")
_QUICK = 3.0  # divisions on a GPU are off by 2 units; by a constant, they are products
# Elementary functions. SLEEF, which Inductor's vectors call, is off by 1 to 3.5 units in the last
# place; CUDA's tables have up to 9; each has the argument reduced, which is one more.
_ELEMENTARY = 10.0
_FUNCTIONS = names(
    """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh
    acosh atanh erf erfc rsqrt sigmoid pow"""
)
# Computed as 1 minus something: at 0 they are as far off as at 1. ATen's vectors have formula
# 7.1.26 of Abramowitz and Stegun for erf, off by 1.5e-7; `config.cpp.use_decompose_tanh`;
# `CppVecOverrides.expm1` is `x.exp() - 1`.
_FROM_ONE = names("erf erfc expm1 tanh")
_GROWING = names("exp exp2 expm1 sinh cosh sigmoid silu softmax sin cos tan pow")


def pointwise(name: str, operator: Any, args: Any, kwargs: Any, kind: torch.dtype) -> Bounded:
    given = flat([args, kwargs])
    call = caller(operator, args, kwargs)
    if name in ("convert_element_type", "to", "_to_copy"):
        return converted(given[0], kind)
    value = call(value_of)
    error = torch.zeros((), dtype=torch.float64)
    for operand in given:
        ends = [call(replacing(operand, end)) for end in ends_of(operand)]
        if ends:
            error = error + torch.stack([apart(value, end) for end in ends]).amax(0)
            if value.is_floating_point():  # `inf * 0`, of an operand that may be any number
                unknown = ~torch.isfinite(operand.bound()) & value.isnan()
                error = torch.where(unknown, torch.inf, error)
    if precision([kind, *(x.dtype for x in given if x.is_real)]) is torch.float32:
        for narrow_args, narrow_kwargs in _narrowed(args, kwargs):
            other = caller(operator, narrow_args, narrow_kwargs)(value_of)
            error = error + apart(value, other)
    if name in ("eq", "ne") and any(bounded.error is not None for bounded in given):
        # Neither end of what a value may be is equal to the other, but something between may be.
        first, second = (x.value if isinstance(x, Bounded) else x for x in args)
        between = sum(bounded.bound() for bounded in given)
        error = torch.where((first - second).abs() <= between, torch.inf, error)
    if not (value.is_floating_point() or value.is_complex()):
        exact = not bool(error.any())
        return rounded(value, None if exact else error, value.dtype, given)
    roundings: float | torch.Tensor = (
        0.0 if name in _EXACT else _QUICK if name in _FEW else _ELEMENTARY
    )
    if name in _GROWING and given[0].is_real:
        size = (torch.log(value.abs()) if name == "pow" else given[0].value).abs()
        roundings = _ELEMENTARY + size.nan_to_num(0.0, 0.0, 0.0)
    if name not in _EXACT and name not in _FEW and name not in _FUNCTIONS:
        # Made of several functions, which may cancel each other: as 1 + erf(x) does in gelu.
        units = _units(kind)
        for bounded in given:
            error = error + (bounded.value.abs() * units if bounded.is_real else 0.0)
    if name in _FROM_ONE:
        error = error + _units(kind)
    underflow: float | torch.Tensor = 1.0
    if name in _THROUGH_ZERO:
        underflow = torch.where((value == 0) & (error == 0), 0.0, 1.0)
    elif name in _GROWING:  # what a mask of -inf leaves is exactly 0
        is_exact = given[0].value.isinf() & (value == 0) & (error == 0)
        underflow = torch.where(is_exact, 0.0, 1.0)
    return rounded(value, error, kind, given, roundings=roundings, underflow=underflow)


def _units(kind: torch.dtype) -> float:
    """What an elementary function may be off by at 1."""
    return torch.finfo(precision([kind])).eps * _ELEMENTARY


def _narrowed(args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """The arguments with one constant as float32 has it, for each that float32 does not have."""
    for name, value in (*enumerate(args), *kwargs.items()):
        if not isinstance(value, float) or not math.isfinite(value):
            continue
        single = float(torch.tensor(value, dtype=torch.float32))
        if single != value and isinstance(name, int):
            yield (*args[:name], single, *args[name + 1 :]), kwargs
        elif single != value:
            yield args, {**kwargs, name: single}


def converted(x: Bounded, kind: torch.dtype) -> Bounded:
    """Another type. Of a half type, both are right: Inductor keeps float32 inside of a kernel."""
    if not kind.is_floating_point and not kind.is_complex:
        value = x.value.to(kind)
        ends = [apart(value, end.to(kind)) for end in ends_of(x)]
        return rounded(value, torch.stack(ends).amax(0) if ends else None, kind, [x])
    value = x.value.to(wide_type(kind))
    if kind in HALVES and x.dtype != kind and READING.get():
        return Bounded(*as_read(value, x.bound(), kind), kind, x.terms, x.steps, x.through)
    if kind in NARROW and x.dtype != kind:
        facts = torch.finfo(kind)
        error = x.bound() + value.abs() * facts.eps + facts.smallest_normal * facts.eps
        error = torch.where(value.abs() > facts.max, torch.inf, error)
        if kind in HALVES:  # others may not have it
            error = torch.where(torch.isinf(value), x.bound(), error)
        made = rounded(value, error, kind, [x], through=frozenset([kind]), roundings=0.0)
        return replace(made, unrounded=x.bound())
    if x.is_real and (precision([x.dtype]) is precision([kind])):
        return Bounded(value, x.error, kind, x.terms, x.steps, x.through)
    return rounded(value, x.error, kind, [x])
