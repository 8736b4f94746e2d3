"""Compares one value of two runs in which memory was filled with different patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rewriter.core.text import element
from rewriter.diagnosis.fill_patterns import FILLS, Filling, pattern
from rewriter.dump import saved
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow

if TYPE_CHECKING:
    import torch

_ROUNDED = 16  # roundings of the largest element: what sums in another order differ by
_MOST = 1 << 27  # bytes of a value that are compared


class Pair(NamedTuple):
    """A call in both runs."""

    first: RunDump
    second: RunDump


class ComparedValue(NamedTuple):
    """A value in both runs: how many elements differ without being filling, the first of them, how
    many elements hold a filling, and which; `left` is the filling of an element that was not
    written, and the first of these. `is_rounded`: those that differ do so by rounding alone."""

    computed: int
    element: str
    filled: Mapping[Filling, int]
    left: tuple[Filling, str] | None = None
    is_rounded: bool = True


def compare_rows(pair: Pair, row: TensorRow, other: TensorRow) -> ComparedValue | None:
    """`None` where it was not saved. Of another shape in the other run, all of it was computed."""
    if row.shape != other.shape:
        shapes = [f"a shape of {list(side.shape)}" for side in (row, other)]
        return ComparedValue(max(row.size, other.size), _in_both(row.arg, shapes), {}, None, False)
    a, b = (saved.load_row(run.path, x) for run, x in zip(pair, (row, other), strict=True))
    if a is None or b is None or max(a.nbytes, b.nbytes) > _MOST:
        return None
    return compare_values(row.arg, a, b)


def compare_values(name: str, a: torch.Tensor, b: torch.Tensor) -> ComparedValue:
    """A value in both runs, element by element and bit by bit."""
    import torch

    size, dtype = a.element_size(), str(a.dtype).removeprefix("torch.")
    first, second = (x.contiguous().reshape(-1).view(torch.uint8).view(-1, size) for x in (a, b))
    filled: dict[Filling, int] = {}
    carried = torch.zeros(len(first), dtype=torch.bool)
    left: tuple[Filling, str] | None = None
    # Of an argument that holds several, the last one is named.
    fillings: tuple[Filling, ...] = ("poison", "stale", "bounds")
    seen: set[tuple[bytes, ...]] = set()
    for filling in fillings:
        patterns = tuple(pattern(filling, fill, dtype) * 2 for fill in FILLS)
        if patterns in seen:
            continue  # of bool all are the same: what was allocated and not written comes first
        seen.add(patterns)
        is_filling = torch.zeros(len(first), dtype=torch.bool)
        for words in {
            tuple(chunk[at : at + size] for chunk in patterns) for at in range(0, 8, size)
        }:
            bits = [torch.frombuffer(bytearray(word), dtype=torch.uint8) for word in words]
            is_filling |= (first == bits[0]).all(1) & (second == bits[1]).all(1)
        if number := int(is_filling.sum()):
            filled[filling] = number
        if filling != "bounds":  # which no buffer has inside: it was read from beside one
            carried |= is_filling
            if number:
                left = filling, _first(name, is_filling, a)
    computed = (first != second).any(1) & ~carried
    count = int(computed.sum())
    if not count:
        return ComparedValue(0, "", filled, left)
    x, y = (tensor.contiguous().reshape(-1)[computed] for tensor in (a, b))
    is_rounded = False
    if a.is_floating_point():
        wide = torch.float64 if a.dtype == torch.float64 else torch.float32
        most = a.to(wide).nan_to_num(0.0, 0.0, 0.0).abs().max() * torch.finfo(a.dtype).eps
        is_rounded = bool(((x.to(wide) - y.to(wide)).abs() <= _ROUNDED * most).all())
    where = _in_both(_first(name, computed, a), [x[0].item(), y[0].item()])
    return ComparedValue(count, where, filled, left, is_rounded)


def _first(name: str, marked: torch.Tensor, tensor: torch.Tensor) -> str:
    """The first of the marked elements of a tensor."""
    return element(name, marked.reshape(tensor.shape).nonzero()[0].tolist())


def _in_both(name: str, values: Sequence[object]) -> str:
    return f"{name}: {values[0]} with the first filling, {values[1]} with the other"
