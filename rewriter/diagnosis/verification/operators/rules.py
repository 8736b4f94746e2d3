"""How far each operation may be off, given how far its operands are: the rule of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, flat, wide_type
from rewriter.diagnosis.verification.operators.moves import (
    EXTREMES,
    MOVES,
    arg_extreme,
    constant,
    extreme,
    moved,
    ordered,
    unknown,
)
from rewriter.diagnosis.verification.operators.operands import (
    Given,
    caller,
    result_type,
    value_of,
)
from rewriter.diagnosis.verification.operators.pointwise import converted, pointwise
from rewriter.diagnosis.verification.operators.products import (
    PRODUCTS,
    grouped,
    multiplied,
    operand_eps,
)
from rewriter.diagnosis.verification.operators.sampled import ATTENTION, attention, sampled
from rewriter.diagnosis.verification.operators.sums import SUMS, summed, variance
from rewriter.locate.declarations import unwritten_operators

_WITH_DROPOUT = ("attention", "rnn", "lstm", "gru")  # these draw only where they are told to


def apply(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Any:
    """What an operator computes of values, as a value or a tuple of them.

    `dtype` is the type that the program gives to the result, `None` where it does not say. Raises
    `UncheckedError` where nothing can be said of it.
    """
    name = operator.__name__.partition(".")[0].rstrip("_")
    is_drawn = torch.Tag.nondeterministic_seeded in operator.tags
    if "philox" in name or (is_drawn and not any(word in name for word in _WITH_DROPOUT)):
        raise UncheckedError(f"{name} draws random numbers")
    given = flat([args, kwargs])
    kind = dtype or result_type(args, kwargs, given)
    cut = kwargs.get("rounding_mode") or ("floor" if name == "floor_divide" else None)
    if cut and kind.is_floating_point:
        return _cut_off(cut, operator, args, kwargs, kind)
    if name in _COMPOSED:
        return _COMPOSED[name](args, kwargs, kind)
    if name in ATTENTION:
        call = attention(operator, args, kwargs)
        return sampled(call, given, kind, eps=operand_eps(name, given))
    call = grouped(args, kwargs) if name == "_grouped_mm" else caller(operator, args, kwargs)
    if name in ("index_put", "scatter", "scatter_reduce"):
        return _scattered(name, call, args, given, kind)
    if name in MOVES:
        return moved(call, given, kind)
    if name in unwritten_operators():
        return unknown(call, kind)
    if not given or name.endswith("_like"):
        return constant(call, kind, is_window=name.endswith("_window"))
    if name in SUMS:
        return summed(name, call, args, given, kind)
    if name in PRODUCTS:
        return multiplied(name, call, args, given, kind)
    if name in ("var_mean", "var", "std"):
        return variance(name, call, args, kwargs, given[0], kind)
    if name in ("argmax", "argmin"):
        return arg_extreme(name, call, args, given[0])
    if name in ("sort", "topk"):
        return ordered(name, call, args, kwargs, given[0])
    if name in EXTREMES or name in ("any", "all"):
        return extreme(call, given, kind)
    if name in ("convert_element_type", "to", "_to_copy") or torch.Tag.pointwise in operator.tags:
        return pointwise(name, operator, args, kwargs, kind)
    return sampled(call, given, kind)


def _scattered(name: str, call: Any, args: Any, given: Given, kind: torch.dtype) -> Bounded:
    accumulates = name == "index_put" and len(args) > 3 and bool(args[3])
    if name == "scatter_reduce" and args[4] != "sum":
        return sampled(call, given, kind)  # type: ignore[no-any-return]
    if accumulates or name == "scatter_reduce":
        return summed(name, call, args, given, kind)
    return moved(call, given, kind)  # type: ignore[no-any-return]


def _cut_off(how: str, operator: Any, args: Any, kwargs: Any, kind: torch.dtype) -> Bounded:
    """A quotient without its fraction, by `floor` or `trunc`: just below a whole number, it may be
    rounded to that before. Torch's own operator goes by fmod; where that gives another result, as
    for infinities, nothing is known."""
    quotient = apply(torch.ops.aten.div.Tensor, tuple(args[:2]), {}, kind)
    result: Bounded = apply(getattr(torch.ops.aten, how).default, (quotient,), {}, kind)
    own, value, bound = caller(operator, args, kwargs)(value_of), result.value, result.bound()
    is_same = (own == value) | (own.isnan() & value.isnan()) | ((own - value).abs() <= bound)
    return replace(result, error=torch.where(is_same, bound, torch.inf))


def _softmax_online(args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    aten, (x, dim) = torch.ops.aten, args[:2]
    top = apply(aten.amax.default, (x, [dim], True), {}, kind)
    less = apply(aten.sub.Tensor, (x, top), {}, kind)
    each = apply(aten.exp.default, (less,), {}, kind)
    return top, apply(aten.sum.dim_IntList, (each, [dim], True), {}, kind)


def _iota(args: Any, kwargs: Any, kind: torch.dtype) -> Bounded:
    start, step, length = kwargs.get("start", 0), kwargs.get("step", 1), args[0]
    dtype = kwargs.get("dtype", torch.int64)
    return Bounded(torch.arange(length, dtype=dtype) * step + start, None, dtype)


def _fma(args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    product = apply(torch.ops.aten.mul.Tensor, tuple(args[:2]), {}, kind)
    return apply(torch.ops.aten.add.Tensor, (product, args[2]), {}, kind)


def _copied(args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    to, source = args[0], args[1]
    spread = apply(torch.ops.aten.expand.default, (source, list(to.value.shape)), {}, source.dtype)
    return spread if source.dtype == to.dtype else converted(spread, to.dtype)


def _packed_product(args: Any, kwargs: dict[str, Any], kind: torch.dtype) -> Any:
    """A product with the transpose of a weight of 8 bits, each row of which has a scale."""
    x, weight, scales = args
    factor = Bounded(weight.value.double().t(), None, torch.float32)
    product = apply(torch.ops.aten.mm.default, (x, factor), {}, torch.float32)
    return converted(apply(torch.ops.aten.mul.Tensor, (product, scales), {}, torch.float32), kind)


def _counts(args: Any, kwargs: dict[str, Any], kind: torch.dtype) -> Any:
    """A histogram, which torch has for integers on a GPU alone."""
    call, x = caller(torch.ops.aten.histc.default, args, kwargs), args[0]
    if x.error is not None or x.value.is_floating_point():
        return sampled(call, [x], kind)
    return Bounded(call(lambda one: one.value.double()).to(kind), None, kind)


_COMPOSED: dict[str, Callable[[Any, dict[str, Any], torch.dtype], Any]] = {
    "prepare_softmax_online": _softmax_online,
    "iota": _iota,
    "fma": _fma,
    "copy": _copied,
    "histc": _counts,
    "_weight_int8pack_mm": _packed_product,
    "full": lambda args, kwargs, kind: constant(
        lambda _: torch.full(args[0], args[1], dtype=wide_type(kind)), kind
    ),
    "device_put": lambda args, kwargs, kind: args[0],
    "inductor_force_stride_order": lambda args, kwargs, kind: args[0],
}
