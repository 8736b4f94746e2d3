"""Sums up saved tensors, in bins and in tiles, for which a report imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.dump.rows import TensorRow, finite
from rewriter.dump.saved import file_of, load, load_row, mismatch
from rewriter.report.types import Bins, Tiles

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
    if not low < high or (path := file_of(run, row)) is None:
        return None
    tensor = load(path)
    if wrong := mismatch(tensor, row):
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
    tensor = _whole(run, row, _TILED)
    return None if tensor is None else _tiled(tensor)


def error_tiles(
    a: tuple[Path, TensorRow], b: tuple[Path, TensorRow], atol: float, rtol: float
) -> Tiles | None:
    """The same of |a - b|, where an element is wrong beyond atol + rtol * |b|."""
    tensors = (_whole(*a, _TILED // 4), _whole(*b, _TILED // 4))
    if tensors[0] is None or tensors[1] is None or tensors[0].shape != tensors[1].shape:
        return None

    import torch

    wide = torch.complex128 if any(x.is_complex() for x in tensors if x is not None) else None
    one, other = (tensor.to(wide or torch.float64) for tensor in tensors if tensor is not None)
    error = (one - other).abs()
    same = (one == other) | (one.isnan() & other.isnan())
    return _tiled(error.where(~same, 0), ~same & ~(error <= atol + rtol * other.abs()))


def _whole(run: Path, row: TensorRow, most: int) -> torch.Tensor | None:
    tensor = load_row(run, row) if 0 < row.size <= most else None
    return None if tensor is None else tensor.detach()


def _tiled(tensor: torch.Tensor, wrong: torch.Tensor | None = None) -> Tiles:
    """The tiles. Without `wrong`, NaN are wrong, and infinities."""
    import torch

    shape = tensor.shape
    values = tensor.abs() if tensor.is_complex() else tensor
    grid = values.reshape(-1, shape[-1] if shape else 1)
    rows, columns = (min(size, TILES) for size in grid.shape)
    to = torch.arange(grid.shape[1]) * columns // grid.shape[1]
    means: list[float | None] = []
    tiles: list[int] = []
    first: dict[str, tuple[int, int]] = {}  # positions of an element and its tile
    start = 0
    for number, part in enumerate(grid.tensor_split(rows)):
        part = part.to(torch.float64)
        finite = part.isfinite()
        sums, counts = torch.zeros(2, columns, dtype=torch.float64)
        sums.index_add_(0, to, part.where(finite, 0).sum(0))
        counts.index_add_(0, to, finite.sum(0).to(torch.float64))
        means += [x if n else None for x, n in zip((sums / counts).tolist(), counts, strict=True)]
        held, bad = {"nan": part.isnan(), "inf": part.isinf()}, ~finite
        if wrong is not None:
            bad = wrong.reshape(-1)[start : start + part.numel()].reshape(part.shape)
            held = {"wrong": bad}
        tiles += [number * columns + at for at in sorted(set(to[bad.any(0)].tolist()))]
        for what, where in held.items():
            if what not in first and where.any():
                at = int(where.flatten().to(torch.uint8).argmax())
                tile = number * columns + int(to[at % part.shape[1]])
                first[what] = start + at, tile
        start += part.numel()
    found = first.get("wrong", first.get("nan", first.get("inf")))
    if found is None:
        return Tiles(rows, columns, tuple(means), tuple(tiles))
    index = tuple(int(at) for at in torch.unravel_index(torch.tensor(found[0]), shape))
    return Tiles(rows, columns, tuple(means), tuple(tiles), index, found[1])


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in pieces that fit into memory, whatever the strides, and in any order."""
    if tensor.numel() <= _CHUNK:
        yield tensor.reshape(-1)
        return
    outer = max((axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1), key=tensor.stride)
    for half in tensor.chunk(2, outer):
        yield from _blocks(half)
