"""How two tensors differ, at the speed of memory and with the accuracy of float64.

Tensors are read in blocks that stay in the processor's cache. A block of floating-point numbers is
first measured in float32, a dozen passes over half the bytes that float64 has. That settles all but
what float32 cannot decide: a new maximum, an element at the edge of its tolerance, numbers that are
not finite or whose squares float32 does not hold. Such blocks, and those of other types, are
measured again in float64. So maxima, counts and positions are exact; sums over float32 blocks are
accurate to about 1e-6, which is more than anybody reads of a mean or a signal-to-noise ratio, and
others to 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch

from rewriter.comparison.elements import check, elements, memory_order
from rewriter.comparison.types import Extreme, Metrics, Tolerance
from rewriter.comparison.ulp import coarser, largest_distance

# Elements of a block: few enough for the cache, and so many that a pass takes longer than starting
# it, and than handing the interpreter's lock from one thread to another.
BLOCK = 1 << 17
# In float64 there are more temporary tensors, and fewer blocks that need them.
_SMALL = 1 << 15

_TINY = 2.0**-149  # the smallest positive float32
# A float32 error or quotient, and what it stands for, differ by less than this, relatively.
_SLACK = 2.0**-21

# Gives the elements of a tensor from one position to another, as a contiguous vector.
Reader = Callable[[int, int], torch.Tensor]


def compare(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance) -> Metrics:
    """How `a` differs from `b`, a tensor of the same shape and of any dtype; b is the expected one.

    Both are compared in the wider of their types, complex numbers by their moduli: `Extreme.a` and
    the means are those of the moduli. Integers are compared exactly, against floating-point numbers
    in float64. Of elements that are equally far apart the first in the memory of `a` is named.

    Raises `RewriterError` where elements have no numeric value, as in packed or quantized types.
    """
    if a.shape != b.shape:
        raise ValueError(f"tensors of shapes {tuple(a.shape)} and {tuple(b.shape)}")
    for tensor in (a, b):
        check(tensor.dtype)
    order = memory_order(a.shape, a.stride())
    read_a, read_b = (
        partial(elements, tensor.detach().resolve_conj().resolve_neg().permute(order))
        for tensor in (a, b)
    )
    totals = measure(read_a, read_b, 0, a.numel(), tolerance)
    return totals.metrics(tuple(a.shape), order)


def measure(a: Reader, b: Reader, first: int, last: int, tolerance: Tolerance) -> Totals:
    """Measure the elements from one position to another."""
    totals = Totals()
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        _add(totals, a(start, end), b(start, end), start, tolerance)
    return totals


@dataclass(frozen=True)
class _Found:
    """An element, by its position in memory order; `error` is an int between integers."""

    error: float
    position: int
    a: float
    b: float


@dataclass
class Totals:
    """What is known of the elements seen so far. Sums are over the finite pairs."""

    numel: int = 0
    finite: int = 0
    sum_a: float = 0.0
    sum_b: float = 0.0
    sum_error: float = 0.0
    square_a: float = 0.0
    square_b: float = 0.0
    square_error: float = 0.0
    product: float = 0.0
    mismatched: int = 0
    nan_a: int = 0
    nan_b: int = 0
    inf: int = 0
    differ: int = 0  # blocks that are not the same bit for bit
    unscaled: int = 0  # blocks where b is 0 and a is not
    ulp: int | None = None
    max_abs: _Found | None = None
    max_rel: _Found | None = None
    nonfinite: _Found | None = None

    def add(self, later: Totals) -> None:
        """Add what is known of elements that come after these."""
        for field in fields(self):
            mine, other = getattr(self, field.name), getattr(later, field.name)
            if field.name in ("max_abs", "max_rel"):
                mine = _larger(mine, other)
            elif field.name == "nonfinite":
                mine = mine or other
            elif field.name == "ulp":
                mine = max((ulp for ulp in (mine, other) if ulp is not None), default=None)
            else:
                mine += other
            setattr(self, field.name, mine)

    def metrics(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Metrics:
        """The metrics of a tensor whose dimensions lie in this order in memory."""
        count = self.finite or math.nan

        def extreme(found: _Found | None) -> Extreme | None:
            if found is None:
                return None
            return Extreme(found.error, _index(found.position, shape, order), found.a, found.b)

        return Metrics(
            numel=self.numel,
            identical=not self.differ,
            max_abs=extreme(self.max_abs),
            max_rel=extreme(self.max_rel),
            mean_abs=self.sum_error / count,
            rms=math.sqrt(self.square_error / count),
            mean_a=self.sum_a / count,
            mean_b=self.sum_b / count,
            cosine=self._cosine(),
            snr=self._snr(),
            ulp=self.ulp,
            mismatched=self.mismatched,
            nan_a=self.nan_a,
            nan_b=self.nan_b,
            inf=self.inf,
            nonfinite=extreme(self.nonfinite),
            atol_needed=self.max_abs.error if self.max_abs else 0.0,
            rtol_needed=self._rtol_needed(),
        )

    def _rtol_needed(self) -> float:
        if self.unscaled:
            return math.inf
        return self.max_rel.error if self.max_rel else 0.0

    def _cosine(self) -> float:
        if self.mismatched and not self.finite:
            return math.nan
        a, b = math.sqrt(self.square_a), math.sqrt(self.square_b)
        if a == 0 or b == 0:
            return 1.0 if a == b else 0.0
        if self.square_error > self.square_b / 4:
            return min(1.0, max(-1.0, self.product / a / b))
        # By the law of cosines: the product of nearly equal vectors would leave nothing of what
        # tells the cosine from 1.
        return 1 - max(0.0, self.square_error - (a - b) ** 2) / (2 * a * b)

    def _snr(self) -> float:
        if self.mismatched and not self.finite:
            return math.nan
        if self.square_error == 0:
            return math.inf
        return 10 * math.log10(self.square_b / self.square_error) if self.square_b else -math.inf


def _larger(earlier: _Found | None, later: _Found | None) -> _Found | None:
    if earlier is None or later is None:
        return earlier or later
    return later if later.error > earlier.error else earlier


def _index(position: int, shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    index = [0] * len(shape)
    for dimension in reversed(order):
        position, index[dimension] = divmod(position, shape[dimension])
    return tuple(index)


def _add(
    totals: Totals, a: torch.Tensor, b: torch.Tensor, first: int, tolerance: Tolerance
) -> None:
    if a.is_floating_point() and b.is_floating_point() and max(a.itemsize, b.itemsize) <= 4:
        found = _float32(a, b, first, tolerance, totals)
        if found is not None:
            totals.add(found)
            return
    for start in range(0, a.numel(), _SMALL):
        part = slice(start, start + _SMALL)
        totals.add(_float64(a[part], b[part], first + start, tolerance))


def _float32(
    a: torch.Tensor, b: torch.Tensor, first: int, tolerance: Tolerance, known: Totals
) -> Totals | None:
    """Measure a block in float32; `None` where that is not accurate.

    Maxima that cannot exceed those already known are left out.
    """
    numel = a.numel()
    ulp, close = largest_distance(a, b)
    same = close and ulp == 0
    x, y = a.float(), b.float()
    sum_b, square_b = y.sum().item(), y.square().sum().item()
    if not _accurate(square_b, numel):
        return None
    if same:
        found = Totals(numel, numel, sum_b, sum_b, 0.0, square_b, square_b, 0.0, square_b, ulp=0)
        if known.max_rel is None:
            found.max_abs = _Found(0.0, first, x[0].item(), y[0].item())
            place = int(y.ne(0).to(torch.uint8).argmax())
            found.max_rel = _Found(0.0, first + place, x[place].item(), y[place].item())
        return found
    sum_a, square_a = x.sum().item(), x.square().sum().item()
    error = x - y
    square_error = error.square().sum().item()
    sum_error, size = error.abs_().sum().item(), y.abs()
    if not (_accurate(square_a, numel) and (sum_error == 0 or _accurate(square_error, numel))):
        return None
    found = Totals(numel, numel, sum_a, sum_b, sum_error, square_a, square_b, square_error)
    found.differ, found.ulp = 1, ulp
    found.product = (square_a + square_b - square_error) / 2
    if square_error > square_b / 4:  # cancelled
        found.product = (x * y).sum().item()

    # The difference of two numbers of one type within a factor of 2 is exact (Sterbenz' lemma).
    largest = error.amax().item()
    if known.max_abs is None or largest * (1 if close else 1 + _SLACK) > known.max_abs.error:
        found.max_abs = _exact_maximum(error, largest, x, y, first)

    # Where both are 0 this is 0; where b alone is, at least 1.
    relative = error / size.clamp(min=_TINY)
    steepest = relative.amax().item()
    if steepest >= 1 and (error.gt(0) & size.eq(0)).any():
        found.unscaled = 1
        steepest = relative.masked_fill_(size.eq(0), 0).amax().item()
    # Quotients of 16-bit numbers this near to one another are at least 2**-22 apart, or equal.
    distinct = close and a.itemsize <= 2 and steepest < 0.4
    reach = steepest * (1 - 2.0**-23 if distinct else 1 + _SLACK)
    if known.max_rel is None or reach > known.max_rel.error:
        relative.masked_fill_(size.eq(0), -1)
        found.max_rel = _exact_maximum(relative, steepest, x, y, first, relative=True)

    steepest = math.inf if found.unscaled else steepest
    mismatched = _mismatched(error, size, largest, steepest, tolerance)
    if mismatched is None:
        return None
    found.mismatched = mismatched
    return found


def _accurate(square: float, numel: int) -> bool:
    """Whether a sum of squares in float32 lost nothing to overflow or underflow: no NaN either."""
    return numel * 2.0**-126 <= square < 2.0**126


def _mismatched(
    error: torch.Tensor,
    size: torch.Tensor,
    largest: float,
    steepest: float,
    tolerance: Tolerance,
) -> int | None:
    """How many elements are outside the tolerance; `None` if float32 cannot tell."""
    rtol, atol = tolerance.rtol, tolerance.atol
    if largest * (1 + _SLACK) <= atol or steepest * (1 + _SLACK) <= rtol:
        return 0
    if rtol == atol == 0:
        return int(error.count_nonzero())
    if not (2.0**-100 < atol < 2.0**100 and rtol < 2.0**60):  # float32 might not hold the sum
        return None
    allowed = size.mul_(rtol).add_(atol)
    # In place the result is a vector of float32: much faster to make and to sum than one of bool.
    surely = allowed.mul(1 + _SLACK).lt_(error).sum().item()
    perhaps = allowed.mul_(1 - _SLACK).lt_(error).sum().item()
    return int(surely) if surely == perhaps else None


def _exact_maximum(
    values: torch.Tensor,
    peak: float,
    x: torch.Tensor,
    y: torch.Tensor,
    first: int,
    *,
    relative: bool = False,
) -> _Found:
    """Where the error is largest, among the elements whose float32 value comes near the peak."""
    places = values.ge(peak * (1 - _SLACK)).nonzero().squeeze(1)
    x, y = x[places].double(), y[places].double()
    exact = (x - y).abs()
    if relative:
        exact /= y.abs()
    best = int(exact.argmax())
    return _Found(exact[best].item(), first + int(places[best]), x[best].item(), y[best].item())


def _float64(a: torch.Tensor, b: torch.Tensor, first: int, tolerance: Tolerance) -> Totals:
    """Measure a block of any types in float64, or in 64 bits where both are integers."""
    found = Totals(a.numel(), differ=int(not _same_bits(a, b)))
    a, b = (t.byte() if t.dtype == torch.bool else t for t in (a, b))
    is_complex = a.is_complex() or b.is_complex()
    wide = torch.complex128 if is_complex else torch.float64
    x, y = a.to(wide), b.to(wide)
    places = torch.arange(first, first + a.numel())
    finite = x.isfinite() & y.isfinite()
    if not finite.all():
        _count_nonfinite(found, x, y, finite, first)
        x, y, places = x[finite], y[finite], places[finite]
    found.finite = x.numel()
    if not found.finite:
        return found

    if a.is_floating_point() and b.is_floating_point():
        coarse = coarser(a.dtype, b.dtype)
        found.ulp = largest_distance(x.to(coarse), y.to(coarse))[0]
    error = (x - y).abs()
    found.product = (x * y.conj()).real.sum().item()
    x, y = (x.abs(), y.abs()) if is_complex else (x, y)
    size = y.abs()
    integers = not any(t.is_floating_point() or t.is_complex() for t in (a, b))
    if integers:
        error = _integer_error(a, b)

    found.sum_a, found.sum_b = x.sum().item(), y.sum().item()
    found.sum_error = error.sum().item()
    found.square_a, found.square_b = x.square().sum().item(), y.square().sum().item()
    found.square_error = error.square().sum().item()
    found.mismatched += int((error > tolerance.atol + tolerance.rtol * size).sum())
    if integers:
        found.max_abs = _integer_maximum(error, places, a, b)
    else:
        found.max_abs = _maximum(error, places, x, y)
    scaled = size > 0
    found.unscaled = int((error[~scaled] > 0).any())
    if scaled.any():
        relative = torch.where(scaled, error / size, -1)
        found.max_rel = _maximum(relative, places, *((a, b) if integers else (x, y)))
    return found


def _maximum(
    errors: torch.Tensor, places: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> _Found:
    best = int(errors.argmax())
    return _Found(errors[best].item(), int(places[best]), a[best].item(), b[best].item())


def _integer_maximum(
    errors: torch.Tensor, places: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> _Found:
    """The largest difference of integers; float64 may take it and others for the same."""
    peak = errors.amax()
    ties = errors.eq(peak).nonzero().squeeze(1)[: None if peak >= 2**53 else 1]
    rows = zip(places[ties].tolist(), a[ties].tolist(), b[ties].tolist(), strict=True)
    found = [_Found(abs(x - y), place, x, y) for place, x, y in rows]
    return max(found, key=lambda one: one.error)


def _integer_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`|a - b|`, rounded once: the difference of two 64-bit integers may take 65 bits."""
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    return ((high_a - high_b).double() * 2.0**32 + (low_a - low_b).double()).abs()


def _halves(integers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low_bits = 2**32 - 1
    if integers.dtype == torch.uint64:
        bits = integers.view(torch.int64)
        return bits >> 32 & low_bits, bits & low_bits
    bits = integers.to(torch.int64)
    return bits >> 32, bits & low_bits


def _count_nonfinite(
    found: Totals, x: torch.Tensor, y: torch.Tensor, finite: torch.Tensor, first: int
) -> None:
    nan_x, nan_y = x.isnan(), y.isnan()
    differ = ~finite & ~(nan_x & nan_y) & (x != y)
    found.nan_a, found.nan_b = int((nan_x & ~nan_y).sum()), int((nan_y & ~nan_x).sum())
    found.mismatched = int(differ.sum())
    found.inf = found.mismatched - found.nan_a - found.nan_b
    if found.mismatched:
        place = int(differ.to(torch.uint8).argmax())
        a, b = (_real(tensor[place].item()) for tensor in (x, y))
        found.nonfinite = _Found(abs(a - b), first + place, a, b)


def _real(value: complex) -> float:
    return abs(value) if isinstance(value, complex) else value


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
