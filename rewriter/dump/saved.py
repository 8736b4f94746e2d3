"""Reads the saved tensors of a dump without trusting what the dump says about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.dump.rows import TensorRow
from rewriter.runtime.text import short_dtype

if TYPE_CHECKING:
    import torch


def is_file_of(run: Path, path: Path) -> bool:
    """Whether a file exists in the run. Anybody may have written the dump, so no name in it may
    lead out of the run."""
    try:
        return path.is_file() and path.resolve().is_relative_to(run.resolve())
    except (OSError, RuntimeError):
        return False  # not a valid name in any file system


def load(path: Path) -> torch.Tensor:
    """The tensor in a file, mapped. Raises `RewriterError` if the file is damaged."""
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        # For a damaged file an unpickler may raise anything, and torch's text advises to trust it.
        raise _unreadable(path, "it was damaged, or torch.save did not write it") from error
    if not isinstance(loaded, torch.Tensor):
        raise _unreadable(path, f"it holds no tensor but {type(loaded).__name__}")
    return loaded


def load_row(run: Path, row: TensorRow) -> torch.Tensor | None:
    """The saved tensor of a row of a run; `None` if it was not saved, or its file is damaged or not
    the one that was recorded."""
    path = run / row.file
    if not row.file or not is_file_of(run, path):
        return None
    try:
        tensor = load(path)
    except RewriterError:
        return None  # `report` mentions every such file
    return None if mismatch(tensor, short_dtype(row.dtype), row.shape) else tensor


def mismatch(tensor: torch.Tensor, dtype: str, shape: tuple[int, ...] | None) -> str:
    """How a tensor differs from the one that was recorded; empty if it does not.

    Checked before any element is read: a file of a few bytes may claim any number of elements.
    """
    import torch

    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return f"its file holds a tensor of layout {tensor.layout} on {tensor.device.type}"
    held = short_dtype(tensor.dtype)
    if (held, tuple(tensor.shape)) != (dtype, shape):
        expected = dtype if shape is None else f"{dtype}{list(shape)}"
        return f"its file holds {held}{list(tensor.shape)}, not {expected}"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "its file repeats elements, which no saved tensor does"
    return ""


def _unreadable(path: Path, why: str) -> RewriterError:
    return RewriterError(
        "corrupt-dump",
        f"{path} cannot be read as a saved tensor: {why}",
        hint="Copy the dump again, or run the program once more; `report --no-histograms` reads no "
        "saved tensors.",
    )
