"""Distances between floating-point numbers, in steps from one number to the next."""

from __future__ import annotations

from functools import cache

import torch

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Scratch:
    """Five vectors that may be overwritten, of any type, with a limited number of bytes.

    They and their views as each type are made once: a call into torch releases the interpreter's
    lock, which another thread may then hold.
    """

    def __init__(self, numel: int, itemsize: int) -> None:
        self.numel = numel
        self._rows = torch.empty(5, numel * itemsize, dtype=torch.uint8)
        self._seen: dict[torch.dtype, tuple[torch.Tensor, ...]] = {}

    def rows(self, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        if dtype not in self._seen:
            rows = self._rows.view(dtype)[:, : self.numel]
            self._seen[dtype] = rows.unbind()
        return self._seen[dtype]


@cache
def step(dtype: torch.dtype) -> float:
    """The step from 1 to the next number; `torch.finfo` is wrong about float8_e5m2fnuz."""
    following = torch.ones(1).to(dtype).view(_SIGNED[dtype.itemsize]) + 1
    return following.view(dtype).double().item() - 1


def coarser(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The floating-point type with the longer steps."""
    return a if step(a) > step(b) else b


def largest_distance(a: torch.Tensor, b: torch.Tensor, scratch: Scratch) -> tuple[int, bool]:
    """The largest distance in the coarser type, in steps from number to number.

    Also whether the types are equal and all pairs are within a factor of 2. In rounding to the
    coarser type, larger numbers become an infinity, the step after the largest number.
    """
    dtype = coarser(a.dtype, b.dtype)
    integer = _SIGNED[dtype.itemsize]
    rounded, first, second, spare, _ = scratch.rows(integer)
    if a.dtype != b.dtype:
        scratch.rows(dtype)[0].copy_(b if a.dtype == dtype else a)
    i, j = (t.view(integer) if t.dtype == dtype else rounded for t in (a, b))
    # As integers, two numbers of one sign differ by the number of steps between them. For different
    # signs the difference wraps around, to at least the distance from infinity to -0.
    low, high = torch.stack(torch.aminmax(torch.sub(i, j, out=first))).tolist()
    reach = max(-low, high)
    if reach < (1 if dtype.itemsize == 1 else round(1 / step(dtype))):
        return reach, a.dtype == b.dtype
    if dtype == torch.float8_e8m0fnu:  # exponents only, no sign
        return int((i.view(torch.uint8).short() - j.view(torch.uint8).short()).abs().amax()), False
    _rank(i, first, spare)
    _rank(j, second, spare)
    torch.maximum(first, second, out=spare).sub_(torch.minimum(first, second, out=first))
    low, high = torch.stack(torch.aminmax(spare)).tolist()
    if low < 0:  # wrapped around: larger than any that did not
        return int(spare[spare < 0].amax()) + (1 << 8 * dtype.itemsize), False
    return high, False


def _rank(bits: torch.Tensor, out: torch.Tensor, sign: torch.Tensor) -> None:
    """Map bits of floating-point numbers to integers in the same order; both zeros are 0."""
    torch.bitwise_right_shift(bits, 8 * bits.itemsize - 1, out=sign)
    torch.bitwise_and(sign, torch.iinfo(bits.dtype).max, out=out)
    out.bitwise_xor_(bits).sub_(sign)
