"""Smaller sizes and simpler values of tensors, as long as a question is answered yes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Values = dict[str, "torch.Tensor"]
Holds = Callable[[Values, dict[str, int]], bool]


@dataclass
class Shrinker:
    """Shrinks `values` and `sizes` in place of what it was given, until nothing helps or the time
    is over. `fixed` are tensors that the launch only writes: their elements stay zero."""

    values: Values
    sizes: dict[str, int]
    holds: Holds
    until: float
    fixed: frozenset[str]
    trials: int = 0
    stopped: bool = False

    def _accepts(self, values: Values, sizes: dict[str, int]) -> bool:
        if time.monotonic() > self.until:
            self.stopped = True
            return False
        self.trials += 1
        if not self.holds(values, sizes):
            return False
        self.values, self.sizes = values, sizes
        return True

    def shapes(self, groups: Mapping[int, str | None]) -> None:
        """Make dimensions smaller that have one size, all of them at a time.

        `groups` gives for a size the number that the kernel takes for it, if it takes one.
        """
        for size, symbol in sorted(groups.items(), reverse=True):
            now = size
            for smaller in _smaller(size):
                if smaller >= now or self.stopped:
                    break
                sizes = {**self.sizes, **({symbol: smaller} if symbol else {})}
                values = {k: _narrowed(v, now, smaller) for k, v in self.values.items()}
                if self._accepts(values, sizes):
                    break

    def simplify(self) -> None:
        """Make values zero, one, or rows alike; then as many elements zero as can be."""
        for name in self.values:
            overlaps = 0 in self.values[name].stride()
            if name in self.fixed or self.stopped or overlaps or not self.values[name].numel():
                continue
            for simple in _simple(self.values[name]):
                if self._accepts({**self.values, name: simple}, self.sizes):
                    break
            self._zero_most(name)

    def _zero_most(self, name: str) -> None:
        """Delta debugging over the elements that are not zero: by halves, then by quarters, …"""
        parts = 2
        while not self.stopped:
            tensor = self.values[name]
            there = tensor.reshape(-1).nonzero()[:, 0]
            if len(there) < 2 or parts > 2 * len(there):
                return
            for chunk in there.tensor_split(min(parts, len(there))):
                changed = _with_zeros(self.values[name], chunk)
                self._accepts({**self.values, name: changed}, self.sizes)
                if self.stopped:
                    return
            left = len(self.values[name].reshape(-1).nonzero())
            if parts >= len(there) and left == len(there):
                return
            parts = min(2 * parts, max(2, left))
            if parts > 64:  # the rest would take as many launches as it has elements
                return


def _smaller(size: int) -> Iterator[int]:
    """Sizes to try, the smallest first."""
    seen = {size}
    for number in (1, 2, 3, 4, 8, size // 8, size // 4, size // 2, size - 1):
        if 0 < number < size and number not in seen:
            seen.add(number)
            yield number


def _narrowed(tensor: torch.Tensor, size: int, smaller: int) -> torch.Tensor:
    """The tensor with fewer elements along all dimensions of a size, laid out in the same order."""
    import torch

    if size not in tensor.shape:
        return tensor
    view = tensor
    for dimension, extent in enumerate(tensor.shape):
        if extent == size:
            view = view.narrow(dimension, 0, smaller)
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda x: -strides[x])
    stride, step = [0] * tensor.dim(), 1
    for dimension in reversed(order):
        if strides[dimension]:
            stride[dimension] = step
            step *= max(1, view.shape[dimension])
    made = torch.empty_strided(tuple(view.shape), stride, dtype=tensor.dtype)
    made.copy_(view)
    return made


def _simple(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    if not tensor.reshape(-1).nonzero().numel():
        return
    yield _filled(tensor, 0)
    if bool((tensor == 1).all()):
        return
    yield _filled(tensor, 1)
    if tensor.dim() > 1 and tensor.shape[0] > 1:
        yield _like(tensor).copy_(tensor[:1].expand_as(tensor))
    if tensor.is_floating_point():
        yield _like(tensor).copy_(tensor.round())


def _filled(tensor: torch.Tensor, value: int) -> torch.Tensor:
    return _like(tensor).fill_(value)


def _with_zeros(tensor: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1).clone()
    flat[elements] = 0
    return _like(tensor).copy_(flat.reshape(tensor.shape))


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """New memory of the same strides, which the kernel may have compiled in."""
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
