"""Values in float64, each with a bound on how far the program's value may be off by rounding.

The bound is a running error bound of first order: each operation propagates the errors of its
operands and adds its own rounding. So the bound accounts for cancellation and for the length of
sums, and no tolerance has to be guessed for a model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from rewriter.core.exit_status import first_line

# Storage types: values are converted to them, but kernels compute in float32.
HALVES = (torch.float16, torch.bfloat16)
NARROW = (
    *HALVES,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)
_LONGEST = 160  # characters of what torch says
_FEW = 64  # up to so many terms, all roundings of a sum may have the same sign
LIKELY, _WALK = 8.0, 4.0  # standard deviations
# How values of half types are read inside of a kernel, if that is to be so: `kept`, `rounded`.
READING: ContextVar[str] = ContextVar("READING", default="")


class UncheckedError(Exception):
    """The value of a node cannot be computed; the message says why."""


def in_short(error: BaseException) -> str:
    """The message of an error of torch, without the stack that torch adds."""
    return first_line(str(error))[:_LONGEST]


@dataclass(frozen=True)
class Bounded:
    """A value and a bound on its error: `None` if it is exact, infinite where it is unknown.

    `value` is of float64, complex128, or of the integer type that it has in the program. `dtype` is
    the program's. `terms` is the length of the longest sum in it, `steps` the number of operations
    that round, `through` the narrow types that it was converted to, which may be TF32. `unrounded`
    is the bound before a conversion to a half type, which its readers may see, or not; where it is
    stored, it was made, and once.
    """

    value: torch.Tensor
    error: torch.Tensor | None = None
    dtype: torch.dtype = torch.float32
    terms: int = 0
    steps: int = 0
    through: frozenset[torch.dtype | str] = field(default_factory=frozenset)
    unrounded: torch.Tensor | None = None

    @property
    def is_real(self) -> bool:
        """Whether its type rounds: it is floating-point or complex."""
        return self.value.is_floating_point() or self.value.is_complex()

    def bound(self) -> torch.Tensor:
        """The bound as a tensor of the value's shape."""
        if self.error is None:
            return torch.zeros(self.value.shape, dtype=torch.float64)
        return self.error.expand(self.value.shape)

    def moved(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Bounded:
        """The same elements at other places, with their bounds."""
        error = None if self.error is None else change(self.bound())
        return replace(self, value=change(self.value), error=error, unrounded=None)


def exact(tensor: torch.Tensor) -> Bounded:
    """The recorded input of a launch: it has no error, by definition."""
    return Bounded(wide(tensor), None, tensor.dtype)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, or complex128; integers as they are."""
    return tensor.to(wide_type(tensor.dtype))


def wide_type(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def precision(dtypes: list[torch.dtype]) -> torch.dtype:
    """The type that a kernel computes in: at least float32, which Inductor uses for half types."""
    is_double = any(dtype in (torch.float64, torch.complex128) for dtype in dtypes)
    return torch.float64 if is_double else torch.float32


def roundings_of(terms: int) -> float:
    """The error of a sum of so many terms, in roundings of its total: an upper bound for few terms,
    a very likely one for many."""
    return terms if terms <= _FEW else LIKELY * terms**0.5


def of_sum(
    terms: int, total: torch.Tensor, largest: torch.Tensor, squares: torch.Tensor
) -> torch.Tensor:
    """The error of a sum, in units of rounding.

    `total` is the sum of the magnitudes, `largest` the largest known partial sum, `squares` the sum
    of the squares. Each partial sum is rounded. With few terms, each may be as large as the total.
    With many, roundings are independent, so that the error grows with the square root of their
    number, except with a probability of 1e-13 (Higham and Mary, 2019). The program may add the
    terms in another order; its partial sums differ from the known ones by a random walk at most.
    """
    if terms <= _FEW:
        return total * terms
    walk = largest.abs() + _WALK * squares.clamp_min(0.0).sqrt()
    return torch.minimum(total * terms, roundings_of(terms) * walk)


def flat(value: Any) -> list[Bounded]:
    """The values in the (nested) arguments of an operation."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Bounded)]


def mapped(value: Any, change: Callable[[Bounded], Any]) -> Any:
    """The (nested) arguments with each value replaced by what `change` returns for it."""
    return tree_map_only(Bounded, change, value)


def finite_error(error: torch.Tensor) -> torch.Tensor:
    """The bound, with infinity where it could not be computed (infinity minus infinity)."""
    return torch.nan_to_num(error, nan=torch.inf, posinf=torch.inf)


def as_read(
    value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """A value and its bound as they are `READING`."""
    if READING.get() == "kept":
        return value, error
    half, low, high = ((value + x).to(dtype).double() for x in (0.0, -error, error))
    is_exact = torch.isinf(value) & (error == 0)
    return half, torch.where(is_exact, 0.0, finite_error(torch.maximum(half - low, high - half)))


def rounded(
    value: torch.Tensor,
    error: torch.Tensor | None,
    dtype: torch.dtype,
    given: list[Bounded],
    *,
    roundings: float | torch.Tensor = 1.0,
    underflow: float | torch.Tensor = 1.0,
    terms: int = 0,
    through: frozenset[torch.dtype | str] = frozenset(),
) -> Bounded:
    """The result of an operation, with the error of its own rounding added. `underflow` is 0 where
    nothing near 0 is rounded."""
    terms = max([terms, *(bounded.terms for bounded in given)])
    steps = 1 + max([0, *(bounded.steps for bounded in given)])
    through = through.union(*(bounded.through for bounded in given))
    if not (value.is_floating_point() or value.is_complex()):
        return Bounded(value, error, dtype, terms, steps, through)
    kind = precision([dtype, *(bounded.dtype for bounded in given if bounded.is_real)])
    if dtype in (torch.float32, torch.complex64):  # also of what was computed in float64
        kind = torch.float32
    facts = torch.finfo(kind)
    if kind is torch.float32 and not value.is_complex():  # overflow as the program does
        value = torch.where(value.abs() > facts.max, value.sign() * torch.inf, value)
    own = value.abs() * facts.eps * roundings + facts.tiny * underflow
    before = torch.zeros_like(own) if error is None else finite_error(error)
    is_rounding = isinstance(roundings, torch.Tensor) or roundings > 0
    if dtype in HALVES and is_rounding and READING.get():
        # A sum of two half numbers often is a float32, and half a step between two half numbers.
        is_exact = (before == 0) & (value == value.float().double())
        value, own = as_read(value, torch.where(is_exact, 0.0, before + own), dtype)
        before = torch.zeros_like(own)
    elif dtype in NARROW and is_rounding:  # its readers may see it rounded to that type, or not
        narrow = torch.finfo(dtype)
        # What is rounded may be larger than the value, which the bound of a jump allows.
        own = own + (value.abs() + before + narrow.smallest_normal * underflow) * narrow.eps
        # Its readers may see an infinity, or not.
        own = torch.where(value.abs() >= narrow.max, torch.inf, own)
        through |= {dtype}
    # Infinities and NaN are not rounded; what a rounding before makes another number is unknown.
    outside = torch.where(torch.isinf(before), torch.inf, 0.0)
    error = torch.where(torch.isfinite(value.abs()), finite_error(before + own), outside)
    return Bounded(value, error, dtype, terms, steps, through)
