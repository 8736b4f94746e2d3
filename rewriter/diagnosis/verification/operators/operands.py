"""What rules have in common: the operands of an operation, and the ways of calling it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import (
    Bounded,
    UncheckedError,
    finite_error,
    mapped,
    wide_type,
)


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


Given = list[Bounded]
Call = Callable[[Callable[[Bounded], Any]], Any]
_ANYTHING = (math.nan, 3.5, -1e30)
# torch prints what it does not read: `Tensor!` as `Tensor($0! -> )`, and types of the program.
_UNNAMED, _OPAQUE = re.compile(r"\(\$\d+! -> \)"), re.compile(r"\bPyObject\b")
TYPES = {"dtype", "layout", "device", "pin_memory", "requires_grad", "non_blocking"}


def caller(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Calls the operator with something in the places of its values, and no narrower type."""
    keywords = {name: value for name, value in kwargs.items() if name not in TYPES}
    asked = kwargs.get("dtype")
    if isinstance(asked, torch.dtype):
        keywords["dtype"] = wide_type(asked)
    args = tuple(wide_type(arg) if isinstance(arg, torch.dtype) else arg for arg in args)

    def call(change: Callable[[Bounded], Any]) -> Any:
        return operator(*mapped(args, change), **mapped(keywords, change))

    return updating(operator, args, keywords) if operator._schema.is_mutable else call


def updating(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call of an in-place operator on copies: it returns those that it wrote, then results."""
    arguments, returns = operator._schema.arguments, operator._schema.returns

    def call(change: Callable[[Bounded], Any]) -> Any:
        def copied(one: Bounded) -> Any:
            return change(one).clone()

        handed, named = mapped(args, copied), mapped(kwargs, copied)
        results = operator(*handed, **named)
        results = results if isinstance(results, tuple) else (results,)
        by_name = {**dict(zip((x.name for x in arguments), handed, strict=False)), **named}
        given = [by_name.get(x.name) for x in arguments if is_written(x)]
        written = [y for x in given for y in (x if isinstance(x, (list, tuple)) else [x])]
        new = [x for x, about in zip(results, returns, strict=False) if not is_written(about)]
        return tuple(x for x in (*written, *new) if isinstance(x, torch.Tensor))

    return call


@cache
def schema_of(text: str) -> Any:
    """The schema that a program recorded, as torch printed it."""
    try:
        return torch._C.parse_schema(_OPAQUE.sub("Any", _UNNAMED.sub("!", text)))
    except RuntimeError as error:
        raise UncheckedError(f"the schema {text} cannot be read") from error


def is_written(about: Any) -> bool:
    return about.alias_info is not None and about.alias_info.is_write


def result_type(args: Any, kwargs: dict[str, Any], given: Given) -> torch.dtype:
    asked = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.dtype)]
    if asked:
        return asked[0]
    if real := [bounded.dtype for bounded in given if bounded.is_real]:
        return reduce(torch.promote_types, real)
    return given[0].dtype if given else torch.float32


def value_of(one: Bounded) -> torch.Tensor:
    return one.value


def bound_of(one: Bounded) -> torch.Tensor:
    """The bound in the place of a value: indices stay."""
    return one.bound() if one.is_real else one.value


def magnitude_of(one: Bounded) -> torch.Tensor:
    return one.value.abs() if one.is_real else one.value


def square_of(one: Bounded) -> torch.Tensor:
    return one.value.square() if one.is_real else one.value


def each_result(value: Any, error: Any, make: Callable[[torch.Tensor, Any], Bounded]) -> Any:
    if isinstance(value, (tuple, list)):
        errors = error if isinstance(error, (tuple, list)) else [error] * len(value)
        return tuple(make(*pair) for pair in zip(value, errors, strict=True))
    return make(value, error)


def is_uncertain(given: Given) -> bool:
    """Whether an index or a condition among the operands is not certain."""
    return any(not x.is_real and x.error is not None and bool(x.error.any()) for x in given)


def replacing(one: Bounded, end: torch.Tensor) -> Callable[[Bounded], torch.Tensor]:
    return lambda x: end if x is one else x.value


def ends_of(one: Bounded) -> list[torch.Tensor]:
    """An operand at both ends of its bound; where that is infinite, at several values."""
    if one.error is None or not bool(one.error.any()):
        return []
    if one.is_real:
        is_known = torch.isfinite(one.bound())
        error = torch.where(is_known, one.bound(), 0.0)
        ends = [one.value + error, one.value - error]
        # What is not known may be anything: operations differ in what they do not look at.
        unknown = () if bool(is_known.all()) else _ANYTHING
        return ends + [torch.where(is_known, one.value, x) for x in unknown]
    unsure = one.bound() > 0
    if one.value.dtype is torch.bool:
        return [one.value ^ unsure]
    return [torch.where(unsure, one.value + 1, one.value)]


def apart(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How far two results are apart; what is no number counts as anything."""
    if value.is_floating_point() or value.is_complex():
        same = (value == other) | (value.isnan() & other.isnan())
        return torch.where(same, 0.0, finite_error((value - other).abs()))
    return torch.where(value != other, torch.inf, 0.0).to(torch.float64)
