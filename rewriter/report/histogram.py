"""Sums up saved tensors, in bins and in tiles, for which a report imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.dump.rows import TensorRow, finite
from rewriter.dump.saved import is_file_of, load, load_row, mismatch
from rewriter.report.types import Bins, Tiles
from rewriter.runtime.text import short_dtype

if TYPE_CHECKING:
    import torch

BINS = 40
TILES = 64  # along an axis
_TILED = 1 << 26  # elements of which tiles are made
_CHUNK = 1 << 22  # elements in memory at a time, as float64


def histogram(run: Path, row: TensorRow) -> Bins | str | None:
    """The histogram of a tensor that the dump of a run has in a file, or why there is none.

    The limits are the statistics' extremes. `None` where there are none, or all elements are one
    number, or the file is gone: a dump without its tensors still gives a report. Raises
    `RewriterError` where the file is damaged.
    """
    low, high = finite(row.min), finite(row.max)
    if not row.is_measured or low is None or high is None:
        return None
    low, high = float(low), float(high)
    path = run / row.file
    if not low < high or not is_file_of(run, path):
        return None
    tensor = load(path)
    if wrong := mismatch(tensor, short_dtype(row.dtype), row.shape):
        return wrong

    import torch

    counts = torch.zeros(BINS, dtype=torch.int64)
    left_out = 0
    # Halves: the width of a float64's whole range is no float64.
    width = high / BINS - low / BINS
    for part in _blocks(tensor.detach()):
        values = (part.abs() if part.is_complex() else part).to(torch.float64)
        whole = values[values.isfinite()]
        left_out += values.numel() - whole.numel()
        bins = (whole / width - low / width).floor().clamp(0, BINS - 1).to(torch.int64)
        counts += torch.bincount(bins, minlength=BINS)
    return Bins(low, high, tuple(counts.tolist()), left_out)


def tiles(run: Path, row: TensorRow) -> Tiles | None:
    """The tiles of a tensor that the dump of a run has in a file; `None` of one that is empty, too
    large, or not the one that was recorded, or whose file is gone or damaged."""
    tensor = load_row(run, row) if row.size <= _TILED else None
    if tensor is None or not tensor.numel():
        return None

    import torch

    shape = tensor.shape
    grid = (tensor.abs() if tensor.is_complex() else tensor).reshape(-1, shape[-1] if shape else 1)
    rows, columns = (min(size, TILES) for size in grid.shape)
    to = torch.arange(grid.shape[1]) * columns // grid.shape[1]
    means: list[float | None] = []
    wrong: list[int] = []
    first: dict[str, int] = {}  # by what it is, the position of an element
    start = 0
    for number, part in enumerate(grid.detach().tensor_split(rows)):
        values = part.to(torch.float64)
        finite = values.isfinite()
        sums, counts = torch.zeros(2, columns, dtype=torch.float64)
        sums.index_add_(0, to, values.where(finite, 0).sum(0))
        counts.index_add_(0, to, finite.sum(0).to(torch.float64))
        full = torch.bincount(to, minlength=columns) * len(part)
        means += [x if n else None for x, n in zip((sums / counts).tolist(), counts, strict=True)]
        wrong += [number * columns + at for at in (counts < full).nonzero().flatten().tolist()]
        for what, held in (("nan", values.isnan()), ("inf", values.isinf())):
            if what not in first and held.any():
                first[what] = start + int(held.flatten().to(torch.uint8).argmax())
        start += part.numel()
    position = first.get("nan", first.get("inf"))
    if position is None:
        return Tiles(rows, columns, tuple(means), tuple(wrong))
    index = tuple(int(at) for at in torch.unravel_index(torch.tensor(position), shape))
    line, column = divmod(position, grid.shape[1])
    ends = torch.tensor([len(part) for part in grid.tensor_split(rows)]).cumsum(0)
    tile = int((ends <= line).sum()) * columns + int(to[column])
    return Tiles(rows, columns, tuple(means), tuple(wrong), index, tile)


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in pieces that fit into memory, whatever the strides, and in any order."""
    if tensor.numel() <= _CHUNK:
        yield tensor.reshape(-1)
        return
    outer = max((axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1), key=tensor.stride)
    for half in tensor.chunk(2, outer):
        yield from _blocks(half)
