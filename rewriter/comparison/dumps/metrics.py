"""Measures how two tensors differ, at memory speed and with the accuracy of float64.

Tensors are read in blocks that fit the processor's cache. A block of floating-point numbers is
first measured in float32: a dozen passes over half the bytes of float64. That is enough unless
there is a new maximum, an element at the edge of its tolerance, or numbers that are not finite or
whose squares exceed float32. Such blocks, and blocks of other types, are measured again in float64.
So maxima, counts and positions are exact; sums over float32 blocks are accurate to about 1e-6,
which is enough for a mean or a signal-to-noise ratio, and others to 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise

import torch

from rewriter.comparison.dumps.totals import Totals
from rewriter.comparison.dumps.types import Extreme, Metrics, Tolerance
from rewriter.comparison.dumps.ulp import Scratch, coarser, largest_distance
from rewriter.core.errors import RewriterError
from rewriter.core.strides import memory_order

# Elements of a block: few enough for the cache, but enough that a pass takes longer than starting
# it, and than passing the interpreter's lock between threads.
BLOCK = 1 << 17
# Fewer in float64, which needs more temporary tensors and for few blocks.
_SMALL = 1 << 15

_TINY = 2.0**-149  # the smallest positive float32
# A bound on the relative error of a float32 error or quotient.
_SLACK = 2.0**-21

# Returns the elements of a tensor from one position to another, as a contiguous vector.
Reader = Callable[[int, int], torch.Tensor]


def compare(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance) -> Metrics:
    """How `a` differs from `b`, a tensor of the same shape and of any dtype; b is the expected one.

    They are compared in the wider of their types, complex numbers by their moduli: `Extreme.a` and
    the means are those of the moduli. Integers are compared exactly with each other, and in float64
    with floating-point numbers. Of several elements with the largest error, the first in the memory
    of `a` is reported.

    Raises `RewriterError` if elements have no numeric value, as in packed or quantized types.
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
    return measure(read_a, read_b, a.numel(), tolerance).metrics(tuple(a.shape), order)


def measure(a: Reader, b: Reader, numel: int, tolerance: Tolerance) -> Totals:
    """Measure the elements block by block."""
    totals = Totals()
    # Temporary tensors are reused: the allocator would return the memory of each to the system, and
    # getting it again takes longer than the arithmetic.
    scratch = Scratch(min(numel, BLOCK), 4)
    for start in range(0, numel, BLOCK):
        end = min(start + BLOCK, numel)
        block_a, block_b = a(start, end), b(start, end)
        found = None
        if _in_float32(block_a) and _in_float32(block_b):
            if end - start != scratch.numel:
                scratch = Scratch(end - start, 4)
            found = _float32(block_a, block_b, start, tolerance, totals, scratch)
        if found is not None:
            totals.add(found)
            continue
        for offset in range(0, end - start, _SMALL):
            part = slice(offset, offset + _SMALL)
            totals.add(_float64(block_a[part], block_b[part], start + offset, tolerance))
    return totals


def _in_float32(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize <= 4


def _float32(
    a: torch.Tensor,
    b: torch.Tensor,
    first: int,
    tolerance: Tolerance,
    known: Totals,
    scratch: Scratch,
) -> Totals | None:
    """Measure a block in float32; `None` if that is not accurate.

    Skips maxima that cannot exceed the known ones.
    """
    numel = a.numel()
    error, size, spare, *floats = scratch.rows(torch.float32)
    ulp, close = largest_distance(a, b, scratch)
    same = close and ulp == 0
    x, y = (
        tensor if tensor.dtype == torch.float32 else room.copy_(tensor)
        for tensor, room in zip((a, b), floats, strict=True)
    )
    sum_b, square_b = _values(y.sum(), _product(y, y, spare))
    if not _accurate(square_b, numel):
        return None
    if same:
        found = Totals(numel, numel, sum_b, sum_b, 0.0, square_b, square_b, 0.0, square_b, ulp=0)
        if known.max_rel is None:
            found.max_abs = Extreme(0.0, (first,), x[0].item(), y[0].item())
            place = int(y.ne(0).to(torch.uint8).argmax())
            found.max_rel = Extreme(0.0, (first + place,), x[place].item(), y[place].item())
        return found
    torch.sub(x, y, out=error)
    sums = (x.sum(), _product(x, x, spare), _product(error, error, spare), error.abs_().sum())
    # If both are 0 the quotient is 0; if only b is, it is at least 1.
    torch.abs(y, out=size).clamp_(min=_TINY)
    relative = torch.div(error, size, out=spare)
    found_here = _values(*sums, error.amax(), relative.amax())
    sum_a, square_a, square_error, sum_error, largest, steepest = found_here
    if not (_accurate(square_a, numel) and (sum_error == 0 or _accurate(square_error, numel))):
        return None
    found = Totals(numel, numel, sum_a, sum_b, sum_error, square_a, square_b, square_error)
    found.differ, found.ulp = 1, ulp
    found.product = (square_a + square_b - square_error) / 2
    if square_error > square_b / 4:  # cancelled
        found.product = (x * y).sum().item()

    # The difference of two numbers of one type within a factor of 2 is exact (Sterbenz' lemma).
    if known.max_abs is None or largest * (1 if close else 1 + _SLACK) > known.max_abs.error:
        found.max_abs = _exact_maximum(error, largest, x, y, first)
    if steepest >= 1 and (error.gt(0) & y.eq(0)).any():
        found.unscaled = 1
        steepest = relative.masked_fill_(y.eq(0), 0).amax().item()
    # Quotients of 16-bit numbers this near to one another are at least 2**-22 apart, or equal.
    distinct = close and a.itemsize <= 2 and steepest < 0.4
    reach = steepest * (1 - 2.0**-23 if distinct else 1 + _SLACK)
    if known.max_rel is None or reach > known.max_rel.error:
        relative.masked_fill_(y.eq(0), -1)
        found.max_rel = _exact_maximum(relative, steepest, x, y, first, relative=True)

    steepest = math.inf if found.unscaled else steepest
    mismatched = _mismatched(error, size, spare, largest, steepest, tolerance)
    if mismatched is None:
        return None
    found.mismatched = mismatched
    return found


def _product(x: torch.Tensor, y: torch.Tensor, spare: torch.Tensor) -> torch.Tensor:
    """The scalar product, summed pairwise: the rounding errors of `torch.dot` add up."""
    return torch.mul(x, y, out=spare).sum()


def _values(*scalars: torch.Tensor) -> list[float]:
    values: list[float] = torch.stack(scalars).tolist()
    return values


def _accurate(square: float, numel: int) -> bool:
    """Whether a float32 sum of squares is free of overflow, underflow and NaN."""
    return numel * 2.0**-126 <= square < 2.0**126


def _mismatched(
    error: torch.Tensor,
    size: torch.Tensor,
    spare: torch.Tensor,
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
    # In place, the result is a float32 vector: much faster to make and to sum than a bool one.
    surely = torch.mul(allowed, 1 + _SLACK, out=spare).lt_(error).sum().item()
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
) -> Extreme:
    """Where the error is largest, among elements whose float32 error is close to the maximum."""
    places = values.ge(peak * (1 - _SLACK)).nonzero().squeeze(1)
    x, y = x[places].double(), y[places].double()
    exact = (x - y).abs()
    if relative:
        exact /= y.abs()
    return _maximum(exact, places + first, x, y)


def _float64(a: torch.Tensor, b: torch.Tensor, first: int, tolerance: Tolerance) -> Totals:
    """Measure a block of any types in float64, or in 64-bit integers if both are integers."""
    is_same = a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    found = Totals(a.numel(), differ=int(not is_same))
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
        found.ulp = largest_distance(x.to(coarse), y.to(coarse), Scratch(len(x), 8))[0]
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
) -> Extreme:
    best = int(errors.argmax())
    return Extreme(errors[best].item(), (int(places[best]),), a[best].item(), b[best].item())


def _integer_maximum(
    errors: torch.Tensor, places: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> Extreme:
    """The largest difference of integers, which float64 may not tell from others."""
    peak = errors.amax()
    ties = errors.eq(peak).nonzero().squeeze(1)[: None if peak >= 2**53 else 1]
    rows = zip(places[ties].tolist(), a[ties].tolist(), b[ties].tolist(), strict=True)
    found = [Extreme(abs(x - y), (place,), x, y) for place, x, y in rows]
    return max(found, key=lambda x: x.error)


def _integer_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`|a - b|`, rounded once: the difference of two 64-bit integers may need 65 bits."""
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    return ((high_a - high_b).double() * 2.0**32 + (low_a - low_b).double()).abs()


def _halves(integers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low_bits, is_unsigned = 2**32 - 1, integers.dtype == torch.uint64
    bits = integers.view(torch.int64) if is_unsigned else integers.to(torch.int64)
    return bits >> 32 & low_bits if is_unsigned else bits >> 32, bits & low_bits


def _count_nonfinite(
    totals: Totals, x: torch.Tensor, y: torch.Tensor, finite: torch.Tensor, first: int
) -> None:
    nan_x, nan_y = x.isnan(), y.isnan()
    differ = ~finite & ~(nan_x & nan_y) & (x != y)
    totals.nan_a, totals.nan_b = int((nan_x & ~nan_y).sum()), int((nan_y & ~nan_x).sum())
    totals.mismatched = int(differ.sum())
    totals.inf = totals.mismatched - totals.nan_a - totals.nan_b
    if totals.mismatched:
        place = int(differ.to(torch.uint8).argmax())
        ends = (tensor[place].item() for tensor in (x, y))
        a, b = (abs(end) if isinstance(end, complex) else end for end in ends)
        totals.nonfinite = Extreme(abs(a - b), (first + place,), a, b)


@cache
def check(dtype: torch.dtype) -> None:
    """Raise `RewriterError` if elements of this type have no numeric value of their own."""
    try:
        torch.zeros(1, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype).to(torch.complex128)
    except (RuntimeError, NotImplementedError) as error:
        raise RewriterError(
            "unsupported-dtype",
            f"tensors of {str(dtype).removeprefix('torch.')} cannot be compared: "
            "an element has no numeric value of its own",
            hint="Expected floating-point, complex, integer or bool tensors. Compare this one by "
            "its hash: record both dumps with `--probe hash`.",
        ) from error


def elements(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """The elements from one position to another, in row-major order; copies no others."""
    if tensor.is_contiguous():
        return tensor.view(-1)[first:last]
    inner = tensor[0].numel()
    row, end = first // inner, -(-last // inner)
    if end - row == 1:
        return elements(tensor[row], first - row * inner, last - row * inner)
    if first % inner == last % inner == 0:
        return tensor[row:end].reshape(-1).contiguous()
    # Part of a row, then whole rows, then part of a row.
    cuts = sorted({first, -(-first // inner) * inner, last // inner * inner, last})
    return torch.cat([elements(tensor, *cut) for cut in pairwise(cuts)])
