"""Reads the saved tensors of a dump without trusting what the dump says about them, and finds their
elements that are NaN or infinite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.dtypes import short_dtype
from rewriter.core.errors import RewriterError
from rewriter.dump.rows import NonFinite, TensorRow

if TYPE_CHECKING:
    import torch

_LARGE = 1 << 28  # elements; larger tensors are not searched
_MOST_COMPARED = 1 << 26  # elements


def file_of(run: Path, row: TensorRow) -> Path | None:
    """The file of a row of a run; `None` if it was not saved, or is not there. Anybody may have
    written the dump, so no name in it may lead out of the run."""
    path = run / row.file
    try:
        is_inside = path.is_file() and path.resolve().is_relative_to(run.resolve())
    except (OSError, RuntimeError):
        return None  # not a valid name in any file system
    return path if row.file and is_inside else None


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
    if (path := file_of(run, row)) is None:
        return None
    try:
        tensor = load(path)
    except RewriterError:
        return None  # `report` mentions every such file
    return None if mismatch(tensor, row) else tensor


def same_bits(run: Path, a: TensorRow, b: TensorRow) -> bool | None:
    """Whether two rows of a run are of the same bits; `None` where that cannot be told."""
    if a.digest and b.digest:
        return a.digest == b.digest
    if a.is_measured and b.is_measured and a.statistics != b.statistics:
        return False
    if not (a.file and b.file) or a.size > _MOST_COMPARED or not a.size:
        return None
    import torch

    x, y = (load_row(run, row) for row in (a, b))
    if x is None or y is None:
        return None
    return torch.equal(*(tensor.contiguous().view(-1).view(torch.uint8) for tensor in (x, y)))


def mismatch(tensor: torch.Tensor, row: TensorRow) -> str:
    """How a tensor differs from the one that was recorded; empty if it does not.

    Checked before any element is read: a file of a few bytes may claim any number of elements.
    """
    import torch

    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return f"its file holds a tensor of layout {tensor.layout} on {tensor.device.type}"
    held, expected = (f"{short_dtype(x.dtype)}{list(x.shape)}" for x in (tensor, row))
    if held != expected:
        return f"its file holds {held}, not {expected}"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "its file repeats elements, which no saved tensor does"
    return ""


def searched(run: Path, row: TensorRow) -> torch.Tensor | None:
    """The saved tensor of a row, if its elements may be NaN or infinite; `None` if it was not
    saved, is too large, or the file is not what was recorded."""
    if row.size > _LARGE or (tensor := load_row(run, row)) is None:
        return None
    import torch

    tensor = tensor.detach()
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    # torch lacks most operations for 8-bit floats.
    return tensor.to(torch.float32) if tensor.element_size() == 1 else tensor


def where(run: Path, row: TensorRow, what: NonFinite) -> str:
    """The place of the NaN ("nan") or infinities ("inf") in the tensor of a row, in words; empty if
    it was not saved, or the file is not what was recorded."""
    if (tensor := searched(run, row)) is None:
        return ""
    held = tensor.isnan() if what == "nan" else tensor.isinf()
    if not bool(held.any()):
        return ""
    if not row.shape:
        return "it is one number"
    first = [int(index) for index in held.nonzero()[0]]
    text = f"the first at {first}"
    if len(row.shape) > 1:
        rows = held.reshape(-1, row.shape[-1]).any(-1)
        columns = held.reshape(-1, row.shape[-1]).any(0)
        text += f", in {int(rows.sum()):,} of {rows.numel():,} rows"
        if int(columns.sum()) < columns.numel():
            text += f" and {int(columns.sum()):,} of {columns.numel():,} columns"
    if what == "inf" and not tensor.is_complex():
        below = int((held & (tensor < 0)).sum())
        total = int(held.sum())
        text += ", all -inf" if below == total else ", all +inf" if not below else ", of both signs"
    return text


def _unreadable(path: Path, why: str) -> RewriterError:
    return RewriterError(
        "corrupt-dump",
        f"{path} cannot be read as a saved tensor: {why}",
        hint="Copy the dump again, or run the program once more; `report --no-histograms` reads no "
        "saved tensors.",
    )
