"""Counts the elements of a saved tensor in bins, for which a report imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.dump.rows import TensorRow, finite
from rewriter.dump.saved import is_file_of, load, mismatch
from rewriter.report.types import Bins
from rewriter.runtime.text import short_dtype

if TYPE_CHECKING:
    import torch

BINS = 40
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


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in pieces that fit into memory, whatever the strides, and in any order."""
    if tensor.numel() <= _CHUNK:
        yield tensor.reshape(-1)
        return
    outer = max((axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1), key=tensor.stride)
    for half in tensor.chunk(2, outer):
        yield from _blocks(half)
