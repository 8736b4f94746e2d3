"""Distances between floating-point numbers, counted in steps from one to the next."""

from __future__ import annotations

from functools import cache

import torch

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@cache
def coarser(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    return a if torch.finfo(a).eps > torch.finfo(b).eps else b


def largest_distance(a: torch.Tensor, b: torch.Tensor) -> tuple[int, bool]:
    """The largest distance in the coarser type, in steps from number to number.

    Also whether the types are equal and all pairs within a factor of 2. Rounding to the coarser
    type takes what exceeds it for an infinity, the step after the largest number.
    """
    dtype = coarser(a.dtype, b.dtype)
    integer = _SIGNED[dtype.itemsize]
    i, j = a.to(dtype).view(integer), b.to(dtype).view(integer)
    # Seen as integers, numbers of one sign are as far apart as they have steps between them. Those
    # of two signs, as the difference wraps around, are at least as far as infinity is from -0.
    low, high = torch.aminmax(i - j)
    reach = max(-int(low), int(high))
    if reach < (1 if dtype.itemsize == 1 else round(1 / torch.finfo(dtype).eps)):
        return reach, a.dtype == b.dtype
    if dtype == torch.float8_e8m0fnu:  # exponents alone: no sign
        i, j = a.to(dtype).view(torch.uint8).short(), b.to(dtype).view(torch.uint8).short()
    else:
        i, j = _ranks(i), _ranks(j)
    distance = torch.maximum(i, j) - torch.minimum(i, j)
    wrapped = distance[distance < 0]
    if len(wrapped):  # longer than any that did not wrap around
        return int(wrapped.amax()) + (1 << 8 * dtype.itemsize), False
    return int(distance.amax()), False


def _ranks(bits: torch.Tensor) -> torch.Tensor:
    """From the bits of floating-point numbers, integers in the numbers' order; both zeros are 0."""
    sign = bits >> 8 * bits.itemsize - 1
    return (bits ^ sign & torch.iinfo(bits.dtype).max) - sign
