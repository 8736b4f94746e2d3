"""How the elements of a tensor lie in memory, by its sizes and strides."""

from __future__ import annotations

import math
from collections.abc import Sequence


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie in the order of their indices."""
    return tuple(math.prod(max(1, size) for size in shape[at + 1 :]) for at in range(len(shape)))


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill one contiguous range of memory, in any order of the dimensions."""
    if 0 in shape:
        return True
    expected = 1
    for step, size in sorted(zip(stride, shape, strict=False)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def memory_order(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, from the largest stride to the smallest."""
    return tuple(
        sorted(range(len(shape)), key=lambda i: (-stride[i], i) if shape[i] > 1 else (0, i))
    )
