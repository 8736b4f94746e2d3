"""Finds the elements of a saved tensor that are NaN or infinite. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.dump.rows import NonFinite, TensorRow
from rewriter.dump.saved import load_row

if TYPE_CHECKING:
    import torch

_LARGE = 1 << 28  # elements; larger tensors are not searched


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
