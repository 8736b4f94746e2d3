"""How far each operation may be off, given how far its operands are: rules by the name of the ATen
operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from rewriter.verification import attention
from rewriter.verification.bounded import (
    HALF,
    Bounded,
    UncheckedError,
    finite_error,
    flat,
    mapped,
    of_sum,
    precision,
    rounded,
    roundings_of,
    wide_type,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What moves elements and computes nothing.
MOVES = _names(
    """alias as_strided cat chunk clone constant_pad_nd contiguous detach diagonal
    embedding expand flip gather index index_select lift_fresh_copy
    pad permute pixel_shuffle pixel_unshuffle repeat reshape roll select select_scatter slice
    slice_scatter split split_with_sizes squeeze stack t tile transpose tril triu unbind unfold
    unsqueeze view view_as _unsafe_index _unsafe_view diagonal_copy im2col repeat_interleave
    reflection_pad1d reflection_pad2d replication_pad2d"""
)
# What sums elements, or weighs them by numbers that are exact.
SUMS = _names("sum mean cumsum avg_pool2d _adaptive_avg_pool2d scatter_add index_add")
PRODUCTS = _names("mm bmm addmm baddbmm mv addmv dot convolution matmul linear")
EXTREMES = _names("amax amin max min aminmax sort topk max_pool2d_with_indices median")
RANDOM = ("rand", "bernoulli", "dropout", "multinomial", "philox", "normal_functional", "seed")
# Of these, what a kernel computes is the rounded result of exact operands, or one of them.
_EXACT = _names(
    """abs neg maximum minimum where relu clamp clamp_min clamp_max eq ne lt le gt ge sign floor
    ceil round trunc logical_not logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_not masked_fill isnan isinf fill threshold real imag conj"""
)
_FEW = _names("add sub mul div reciprocal sqrt square rsub lerp addcmul addcdiv")
_QUICK = 3.0  # divisions on a GPU are off by 2 units, and a constant divisor is multiplied with
# Elementary functions. SLEEF, which Inductor's vectors call, is off by 1 to 3.5 units in the last
# place; CUDA's tables have up to 9; each has the argument reduced, which is one more.
_ELEMENTARY = 10.0
_FUNCTIONS = _names(
    """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh
    acosh atanh erf erfc rsqrt sigmoid pow"""
)
_GROWING = _names("exp exp2 expm1 sinh cosh sigmoid silu softmax sin cos tan pow")

_Given = list[Bounded]
_TYPES = {"dtype", "layout", "device", "pin_memory", "requires_grad", "non_blocking"}


def apply(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Any:
    """What an operator computes of values, as a value or a tuple of them.

    `dtype` is the type that the program gives to the result, `None` where it does not say. Raises
    `UncheckedError` where nothing can be said of it.
    """
    name = operator.__name__.partition(".")[0].rstrip("_")
    if any(word in name for word in RANDOM):
        raise UncheckedError(f"{name} draws random numbers")
    given = flat([args, kwargs])
    kind = dtype or _result_type(name, args, kwargs, given)
    if name in _COMPOSED:
        return _COMPOSED[name](args, kwargs, kind)
    if name in attention.NAMES:
        return _sampled(attention.attention(operator, args, kwargs), given, kind)
    call = _caller(operator, args, kwargs)
    if name in ("index_put", "scatter", "scatter_reduce"):
        return _scattered(name, call, args, given, kind)
    if name in MOVES:
        return _moved(call, given, kind)
    if not given or name.endswith("_like"):
        return _constant(call, kind)
    if name in SUMS:
        return _summed(name, call, args, given, kind)
    if name in PRODUCTS:
        return _multiplied(name, call, args, given, kind)
    if name in ("var_mean", "var", "std"):
        return _variance(name, call, args, kwargs, given[0], kind)
    if name in ("argmax", "argmin"):
        return _arg_extreme(name, call, args, given[0], kind)
    if name in EXTREMES or name in ("any", "all"):
        return _extreme(call, given, kind)
    if name in ("convert_element_type", "to", "_to_copy") or torch.Tag.pointwise in operator.tags:
        return _pointwise(name, operator, args, kwargs, kind)
    return _sampled(call, given, kind)


def _caller(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[Callable[[Bounded], Any]], Any]:
    """Calls the operator with something in the places of its values, and no narrower type."""
    keywords = {name: value for name, value in kwargs.items() if name not in _TYPES}
    asked = kwargs.get("dtype")
    if isinstance(asked, torch.dtype):
        keywords["dtype"] = wide_type(asked)
    args = tuple(wide_type(one) if isinstance(one, torch.dtype) else one for one in args)

    def call(change: Callable[[Bounded], Any]) -> Any:
        return operator(*mapped(args, change), **mapped(keywords, change))

    return call


def _result_type(name: str, args: Any, kwargs: dict[str, Any], given: _Given) -> torch.dtype:
    asked = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)]
    if asked:
        return asked[0]
    real = [one.dtype for one in given if one.is_real]
    if real:
        widest = real[0]
        for one in real[1:]:
            widest = torch.promote_types(widest, one)
        return widest
    return given[0].dtype if given else torch.float32


def _value(one: Bounded) -> torch.Tensor:
    return one.value


def _bound(one: Bounded) -> torch.Tensor:
    """The bound in the place of a value: indices stay."""
    return one.bound() if one.is_real else one.value


def _magnitude(one: Bounded) -> torch.Tensor:
    return one.value.abs() if one.is_real else one.value


def _each(value: Any, error: Any, make: Callable[[torch.Tensor, Any], Bounded]) -> Any:
    if isinstance(value, (tuple, list)):
        errors = error if isinstance(error, (tuple, list)) else [error] * len(value)
        return tuple(make(*pair) for pair in zip(value, errors, strict=True))
    return make(value, error)


def _uncertain(given: _Given) -> bool:
    """Whether an index or a condition among the operands is not certain."""
    return any(not x.is_real and x.error is not None and bool(x.error.any()) for x in given)


def _moved(call: Any, given: _Given, kind: torch.dtype) -> Any:
    if _uncertain(given):
        raise UncheckedError("it depends on a comparison that rounding decides")
    exact = all(one.error is None for one in given)
    errors = None if exact else call(_bound)

    def made(value: torch.Tensor, error: torch.Tensor | None) -> Bounded:
        dtype = kind if value.is_floating_point() else value.dtype
        last = max(given, key=lambda one: one.steps, default=Bounded(value))
        return Bounded(value, error, dtype, last.terms, last.steps, last.through)

    return _each(call(_value), errors, made)


def _constant(call: Any, kind: torch.dtype) -> Bounded:
    value = call(_value)
    if not value.is_floating_point():
        return Bounded(value, None, value.dtype)
    value = value.to(torch.float64)
    narrow = precision([kind])
    return Bounded(value, (value - value.to(narrow).to(torch.float64)).abs().nan_to_num(0.0), kind)


def _summed(name: str, call: Any, args: Any, given: _Given, kind: torch.dtype) -> Bounded:
    value = call(_value)
    if not value.is_floating_point():
        return rounded(value, None, kind, given)
    terms = max(1, given[0].value.numel() // max(1, value.numel()))
    if value.shape == given[0].value.shape:  # a running sum, or a scatter: any may take them all
        terms = max([*value.shape, 1])
    scale = terms if name == "mean" else 1  # what is divided by that is rounded as it was
    largest = _partial_sums(name, args, given[0].value)
    largest = value.abs() * scale if largest is None else largest.reshape(value.shape)
    units = of_sum(terms, call(_magnitude) * scale, largest, call(_square) * scale)
    error = units / scale * torch.finfo(precision([kind])).eps
    if any(one.error is not None for one in given):
        error = error + call(_bound)
    return rounded(value, error, kind, given, terms=terms)


def _square(one: Bounded) -> torch.Tensor:
    return one.value.square() if one.is_real else one.value


def _only(factors: _Given, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Changes factors, and leaves out what is added to their product."""
    return lambda x: (
        change(x.value) if any(x is one for one in factors) else torch.zeros_like(x.value)
    )


def _partial_sums(name: str, args: Any, x: torch.Tensor) -> torch.Tensor | None:
    """The largest partial sum of each sum, in the order of the elements."""
    if name not in ("sum", "mean") or not x.ndim:
        return None
    dims = args[1] if len(args) > 1 and args[1] else list(range(x.ndim))
    dims = [one % x.ndim for one in ([dims] if isinstance(dims, int) else dims)]
    kept = [one for one in range(x.ndim) if one not in dims]
    rows = x.permute(kept + dims).reshape([x.shape[one] for one in kept] + [-1])
    return rows.cumsum(-1).abs().amax(-1) if rows.shape[-1] else None


def _multiplied(name: str, call: Any, args: Any, given: _Given, kind: torch.dtype) -> Bounded:
    value = call(_value)
    if not value.is_floating_point():
        return rounded(value, None, kind, given)
    factors = [x for x in args if isinstance(x, Bounded)]
    factors = factors[1:3] if name in ("addmm", "baddbmm", "addmv") else factors[:2]
    second = factors[1].value
    terms = second[0].numel() if name == "convolution" else factors[0].value.shape[-1]
    narrow = torch.finfo(precision([kind])).eps
    squares = call(_only(factors, torch.square))
    error = of_sum(max(1, terms), call(_magnitude), value, squares) * narrow
    if kind in HALF:  # libraries add parts of a sum in the type of the result
        error = error + (value.abs() + 4 * squares.sqrt()) * torch.finfo(kind).eps
    for uncertain in given:
        if uncertain.error is not None:
            error = error + call(_bounding(uncertain, factors))
    return rounded(value, error, kind, given, terms=terms, roundings=2.0)


def _bounding(uncertain: Bounded, factors: _Given) -> Callable[[Bounded], torch.Tensor]:
    """One operand off by its bound, times the other factor; what is added alone is left out."""
    is_factor = any(x is uncertain for x in factors)

    def change(x: Bounded) -> torch.Tensor:
        if x is uncertain:
            return x.bound()
        is_other = is_factor and any(x is one for one in factors)
        return x.value.abs() if is_other else torch.zeros_like(x.value)

    return change


def _variance(name: str, call: Any, args: Any, kwargs: Any, x: Bounded, kind: torch.dtype) -> Any:
    value = call(_value)
    spread = value[0] if name == "var_mean" else value
    dims = args[1] if len(args) > 1 and args[1] is not None else list(range(x.value.ndim))
    dims = [dims] if isinstance(dims, int) else list(dims)
    terms = math.prod(x.value.shape[one] for one in dims)
    correction = kwargs.get("correction", 1)
    narrow = torch.finfo(precision([kind])).eps
    mean = x.value.mean(dims, keepdim=True)
    factor = roundings_of(terms) * narrow
    off = x.bound().mean(dims, keepdim=True)
    off = off + _mean_error(x.value, mean, dims, terms) * narrow
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


def _mean_error(x: torch.Tensor, mean: torch.Tensor, dims: list[int], terms: int) -> torch.Tensor:
    """How many units of rounding a mean may be off by."""
    total = x.abs().sum(dims, keepdim=True)
    squares = x.square().sum(dims, keepdim=True)
    return of_sum(terms, total, mean * terms, squares) / terms


def _extreme(call: Any, given: _Given, kind: torch.dtype) -> Any:
    largest = max((float(one.bound().max()) for one in given if one.error is not None and
                   one.error.numel()), default=0.0)  # fmt: skip

    def made(value: torch.Tensor, _: Any) -> Bounded:
        last = max(given, key=lambda one: one.steps)
        if value.is_floating_point():
            error = torch.full((), largest, dtype=torch.float64) if largest else None
            return Bounded(value, error, kind, last.terms, last.steps, last.through)
        # Which of two it is, where they are closer than the bound, is for rounding to decide.
        unsure = torch.full((), torch.inf, dtype=torch.float64) if largest else None
        return Bounded(value, unsure, value.dtype, last.terms, last.steps, last.through)

    return _each(call(_value), None, made)


def _arg_extreme(name: str, call: Any, args: Any, x: Bounded, kind: torch.dtype) -> Bounded:
    """Which element is the largest: open where another one is as large within the bounds."""
    index = call(_value)
    if x.error is None:
        return Bounded(index, None, index.dtype, x.terms, x.steps, x.through)
    dim = args[1] if len(args) > 1 else None
    value, bound = x.value if name == "argmax" else -x.value, x.bound()
    if dim is None:
        value, bound, dim = value.reshape(-1), bound.reshape(-1), 0
    keeps = len(args) > 2 and bool(args[2])
    near = value + bound >= (value - bound).amax(dim, keepdim=True)
    unsure = torch.where(near.sum(dim, keepdim=keeps) > 1, torch.inf, 0.0).to(torch.float64)
    unsure = unsure.reshape(index.shape)
    return Bounded(index, unsure, index.dtype, x.terms, x.steps, x.through)


def _pointwise(name: str, operator: Any, args: Any, kwargs: Any, kind: torch.dtype) -> Bounded:
    given = flat([args, kwargs])
    call = _caller(operator, args, kwargs)
    if name in ("convert_element_type", "to", "_to_copy"):
        return _converted(given[0], kind)
    value = call(_value)
    error = torch.zeros((), dtype=torch.float64)
    for one in given:
        ends = [call(_replacing(one, end)) for end in _ends(one)]
        if ends:
            error = error + torch.stack([_apart(value, end) for end in ends]).amax(0)
    if precision([kind, *(x.dtype for x in given if x.is_real)]) is torch.float32:
        for narrow_args, narrow_kwargs in _narrowed(args, kwargs):
            other = _caller(operator, narrow_args, narrow_kwargs)(_value)
            error = error + _apart(value, other)
    if not (value.is_floating_point() or value.is_complex()):
        exact = not bool(error.any())
        return rounded(value, None if exact else error, value.dtype, given)
    roundings: float | torch.Tensor = (
        0.0 if name in _EXACT else _QUICK if name in _FEW else _ELEMENTARY
    )
    if name in _GROWING and given[0].is_real:
        size = given[0].value.abs()
        if name == "pow":
            size = torch.log(value.abs()).abs().nan_to_num(0.0, 0.0, 0.0)
        roundings = _ELEMENTARY + size
    if name not in _EXACT and name not in _FEW and name not in _FUNCTIONS:
        # Made of several functions, which may cancel each other: as 1 + erf(x) does in gelu.
        units = torch.finfo(precision([kind])).eps * _ELEMENTARY
        for one in given:
            error = error + (one.value.abs() * units if one.is_real else 0.0)
    return rounded(value, error, kind, given, roundings=roundings)


def _replacing(one: Bounded, end: torch.Tensor) -> Callable[[Bounded], torch.Tensor]:
    return lambda x: end if x is one else x.value


def _ends(one: Bounded) -> list[torch.Tensor]:
    """An operand at both ends of its bound."""
    if one.error is None or not bool(one.error.any()):
        return []
    if one.is_real:
        error = torch.where(torch.isfinite(one.bound()), one.bound(), 0.0)
        return [one.value + error, one.value - error]
    unsure = one.bound() > 0
    if one.value.dtype is torch.bool:
        return [one.value ^ unsure]
    return [torch.where(unsure, one.value + 1, one.value)]


def _apart(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How far two results are apart; what is no number counts as anything."""
    if value.is_floating_point() or value.is_complex():
        same = (value == other) | (value.isnan() & other.isnan())
        return torch.where(same, 0.0, finite_error((value - other).abs()))
    return torch.where(value != other, torch.inf, 0.0).to(torch.float64)


def _narrowed(args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """The arguments with one constant as float32 has it, for each that float32 does not have."""
    found = []
    for index, one in enumerate(args):
        if isinstance(one, float) and math.isfinite(one) and _single(one) != one:
            found.append(((*args[:index], _single(one), *args[index + 1 :]), kwargs))
    for name, one in kwargs.items():
        if isinstance(one, float) and math.isfinite(one) and _single(one) != one:
            found.append((args, {**kwargs, name: _single(one)}))
    return found


def _single(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float32))


def _converted(x: Bounded, kind: torch.dtype) -> Bounded:
    """Another type. Of a half type, both are right: Inductor keeps float32 inside of a kernel."""
    if not kind.is_floating_point and not kind.is_complex:
        value = x.value.to(kind)
        ends = [_apart(value, end.to(kind)) for end in _ends(x)]
        return rounded(value, torch.stack(ends).amax(0) if ends else None, kind, [x])
    value = x.value.to(wide_type(kind))
    if kind in HALF and x.dtype != kind:
        facts = torch.finfo(kind)
        error = x.bound() + value.abs() * facts.eps + facts.smallest_normal * facts.eps
        error = torch.where(value.abs() > facts.max, torch.inf, error)
        return rounded(value, error, kind, [x], through=frozenset([kind]), roundings=0.0)
    if x.is_real and (precision([x.dtype]) is precision([kind])):
        return Bounded(value, x.error, kind, x.terms, x.steps, x.through)
    return rounded(value, x.error if x.is_real else None, kind, [x])


def _scattered(name: str, call: Any, args: Any, given: _Given, kind: torch.dtype) -> Bounded:
    accumulates = name == "index_put" and len(args) > 3 and bool(args[3])
    if name == "scatter_reduce" and args[4] != "sum":
        return _sampled(call, given, kind)  # type: ignore[no-any-return]
    if accumulates or name == "scatter_reduce":
        return _summed(name, call, args, given, kind)
    return _moved(call, given, kind)  # type: ignore[no-any-return]


def _sampled(call: Any, given: _Given, kind: torch.dtype) -> Any:
    """Of an operator without a rule: how far its result goes if what it reads is off by a rounding
    or by its bound, in a few draws, and how far it is in the program's own precision."""
    if _uncertain(given):
        raise UncheckedError("it depends on a comparison that rounding decides")
    try:
        value = call(_value)
    except (RuntimeError, NotImplementedError) as error:
        first = str(error).strip().split("\n")[0]
        raise UncheckedError(f"it has no implementation in float64 on the CPU: {first}") from error
    if not isinstance(value, (torch.Tensor, tuple, list)):
        return value  # a number, such as that of `item`
    narrow = precision([x.dtype for x in given if x.is_real] or [kind])
    # Libraries keep what lies between in the type of the operands.
    half = [torch.finfo(x.dtype).eps for x in given if x.dtype in HALF]
    eps = max([torch.finfo(narrow).eps, *half])
    generator = torch.Generator().manual_seed(0)

    def shaken(one: Bounded) -> torch.Tensor:
        if not one.is_real:
            return one.value
        signs = torch.rand(one.value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return one.value + signs * (one.bound() + one.value.abs() * eps)

    others = [call(shaken) for _ in range(3)]
    terms = max((x.value.shape[-1] for x in given if x.value.ndim), default=1)

    def made(one: torch.Tensor, rest: Any) -> Bounded:
        if not (one.is_floating_point() or one.is_complex()):
            return rounded(one, None, one.dtype, given)
        dtype = kind
        if one.is_complex() != kind.is_complex:
            single = narrow is torch.float32
            dtype = (
                (torch.complex64 if single else torch.complex128) if one.is_complex() else narrow
            )
        far = torch.stack([_apart(one, other) for other in rest]).amax(0)
        # What one element goes by is chance: so much goes any.
        several = 8 * math.sqrt(terms)
        far = torch.maximum(8 * far, far.mean() * several)
        return rounded(one, far, dtype, given, roundings=several, terms=terms)

    if isinstance(value, (tuple, list)):
        return tuple(made(x, [o[i] for o in others]) if isinstance(x, torch.Tensor) else x
                     for i, x in enumerate(value))  # fmt: skip
    return made(value, others)


def _softmax_online(args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    aten = torch.ops.aten
    x, dim = args[0], args[1]
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
    moved = apply(torch.ops.aten.expand.default, (source, list(to.value.shape)), {}, source.dtype)
    return moved if source.dtype == to.dtype else _converted(moved, to.dtype)


def _same(args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    return args[0]


def _filled(args: Any, kwargs: Any, kind: torch.dtype) -> Bounded:
    value = torch.full(args[0], args[1], dtype=wide_type(kind))
    return _constant(lambda _: value, kind)


_COMPOSED: dict[str, Callable[[Any, dict[str, Any], torch.dtype], Any]] = {
    "prepare_softmax_online": _softmax_online,
    "iota": _iota,
    "fma": _fma,
    "copy": _copied,
    "full": _filled,
    "device_put": _same,
    "inductor_force_stride_order": _same,
}
