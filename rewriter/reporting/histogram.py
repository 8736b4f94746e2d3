"""Counts the elements of a saved tensor in bins. The only part of a report that imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import RewriterError
from rewriter.reporting.types import Bins, Reading
from rewriter.runtime.text import short_dtype

if TYPE_CHECKING:
    import torch

BINS = 40
_CHUNK = 1 << 22  # elements in memory at a time, as float64


def histogram(run: Path, reading: Reading) -> Bins | str | None:
    """The histogram of a tensor that the dump of a run has in a file, or why there is none.

    The limits are the statistics' extremes. `None` where there are none, or all elements are one
    number, or the file is gone: a dump without its tensors still gives a report. Raises
    `RewriterError` where the file is damaged.
    """
    found = reading.statistics
    if found is None or found.minimum is None or found.maximum is None or found.magnitude is None:
        return None
    low, high = float(found.minimum), float(found.maximum)
    path = run / reading.file
    if not low < high or not _is_file_of(run, path):
        return None
    tensor = _load(path)
    if wrong := _mismatch(tensor, reading):
        return wrong

    import torch

    counts = torch.zeros(BINS, dtype=torch.int64)
    left_out = 0
    # Halves: the width of a float64's whole range is no float64.
    width = high / BINS - low / BINS
    for part in _blocks(tensor.detach()):
        values = (part.abs() if part.is_complex() else part).to(torch.float64)
        finite = values[values.isfinite()]
        left_out += values.numel() - finite.numel()
        bins = (finite / width - low / width).floor().clamp(0, BINS - 1).to(torch.int64)
        counts += torch.bincount(bins, minlength=BINS)
    return Bins(low, high, tuple(counts.tolist()), left_out)


def _is_file_of(run: Path, path: Path) -> bool:
    """A dump is somebody else's: no name in it leads out of its run."""
    try:
        return path.is_file() and path.resolve().is_relative_to(run.resolve())
    except (OSError, RuntimeError):
        return False  # no file system has such a name


def _load(path: Path) -> torch.Tensor:
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        # A damaged file makes an unpickler raise anything; torch's words advise to trust it.
        raise _unreadable(path, "it was damaged, or torch.save did not write it") from error
    if not isinstance(loaded, torch.Tensor):
        raise _unreadable(path, f"it holds no tensor but {type(loaded).__name__}")
    return loaded


def _unreadable(path: Path, why: str) -> RewriterError:
    return RewriterError(
        "corrupt-dump",
        f"{path} cannot be read as a saved tensor: {why}",
        hint="Copy the dump again, or pass --no-histograms for a report without saved tensors.",
    )


def _mismatch(tensor: torch.Tensor, reading: Reading) -> str:
    """How a tensor is not the one that was recorded; empty if it is.

    Checked before an element is read: a file of a few bytes may claim to hold any number of them.
    """
    import torch

    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return f"its file holds a tensor of layout {tensor.layout} on {tensor.device.type}"
    dtype = short_dtype(tensor.dtype)
    if (dtype, tuple(tensor.shape)) != (reading.dtype, reading.shape):
        return f"its file holds {dtype}{list(tensor.shape)}, not {reading.type}"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "its file repeats elements, which no saved tensor does"
    return ""


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in pieces that fit into memory, whatever the strides, and in any order."""
    if tensor.numel() <= _CHUNK:
        yield tensor.reshape(-1)
        return
    outer = max((axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1), key=tensor.stride)
    for half in tensor.chunk(2, outer):
        yield from _blocks(half)
