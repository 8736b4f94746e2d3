"""Counts the elements of a saved tensor in bins. The only part of a report that imports torch."""

from __future__ import annotations

import pickle
from pathlib import Path

from rewriter.errors import RewriterError
from rewriter.reporting.types import Bins, Reading

BINS = 40
_CHUNK = 1 << 22  # elements in memory at a time, as float64


def histogram(run: Path, reading: Reading) -> Bins | None:
    """The histogram of a tensor that the dump of a run has in a file.

    The limits are the statistics' extremes. `None` where there are none, or all elements are one
    number, or the file is gone: a dump without its tensors still gives a report. Raises
    `RewriterError` where the file is damaged.
    """
    found = reading.statistics
    if found is None or found.minimum is None or found.maximum is None:
        return None
    low, high = float(found.minimum), float(found.maximum)
    path = run / reading.file
    # A dump is somebody else's: no name in it leads out of its run.
    if not low < high or not path.is_file() or not path.resolve().is_relative_to(run.resolve()):
        return None

    import torch

    try:
        tensor = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise RewriterError(
            "corrupt-dump",
            f"{path} is no tensor saved by torch.save: {str(error).partition(chr(10))[0]}",
            hint="Pass --no-histograms for a report without the saved tensors.",
        ) from error
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    counts = torch.zeros(BINS, dtype=torch.int64)
    left_out = 0
    # Halves: the width of a float64's whole range is no float64.
    width = high / BINS - low / BINS
    flat = tensor.detach().reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        values = (part.abs() if part.is_complex() else part).to(torch.float64)
        finite = values[values.isfinite()]
        left_out += values.numel() - finite.numel()
        bins = (finite / width - low / width).floor().clamp(0, BINS - 1).to(torch.int64)
        counts += torch.bincount(bins, minlength=BINS)
    return Bins(low, high, tuple(counts.tolist()), left_out)
