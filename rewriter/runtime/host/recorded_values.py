"""Restores the inputs of a recorded call, and compares outputs with the recorded ones.

`wrapper.py` uses it in the process that runs the wrapper.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..tensors import fingerprint
from .measured import digest

Load = Callable[[str], Any]


def inputs(rows: Sequence[dict[str, Any]], load: Load) -> list[Any]:
    """Restore the inputs of a recorded call, with their values, devices and strides."""
    return [_input(row, load) for row in rows]


def compared(
    outputs: Sequence[Any], rows: Sequence[dict[str, Any] | None], load: Load
) -> list[str]:
    """Compare outputs with recorded rows. Returns for each one of these words:

    `equal` (bit for bit), `differs`, `unknown` (not recorded, or not comparable), or `value` (not a
    tensor).
    """
    padded = [*rows, *[None] * (len(outputs) - len(rows))]
    return [_compared(output, row, load) for output, row in zip(outputs, padded, strict=False)]


def _input(row: dict[str, Any], load: Load) -> Any:
    if not row:
        return None
    if "file" not in row:
        text = row["value"]
        return float(text) if row["type"] == "float" else ast.literal_eval(text)
    value = load(row["file"])
    shape, stride = tuple(row["shape"]), tuple(row.get("stride", ()))
    if tuple(value.shape) != shape:
        raise ValueError(f"{row['file']}: shape {list(value.shape)}, recorded {list(shape)}")
    return _placed(value, stride, torch.device(row["device"]))


def _placed(value: Tensor, stride: tuple[int, ...], device: torch.device) -> Tensor:
    """Copy a tensor to a device with the given strides, so that elements overlap as before."""
    if value.layout is not torch.strided or len(stride) != value.dim() or not value.numel():
        return value.to(device)
    size = 1 + sum((n - 1) * step for n, step in zip(value.shape, stride, strict=True))
    memory = torch.zeros(size, dtype=value.dtype, device=device)
    made = memory.as_strided(value.shape, stride)
    # Along a dimension of stride 0 all elements are the same one: write it once.
    alone, source = made, value.to(device)
    for dimension, step in enumerate(stride):
        if step == 0 and value.shape[dimension] > 1:
            alone, source = alone.narrow(dimension, 0, 1), source.narrow(dimension, 0, 1)
    for target, element in _pieces(alone, source):
        target.copy_(element)
    return made


def _pieces(target: Tensor, source: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Split two tensors into pairs of parts, so that no target part overlaps itself."""
    steps = sorted(
        (step, n) for n, step in zip(target.shape, target.stride(), strict=True) if n > 1
    )
    reach = 0
    for step, n in steps:
        if step <= reach:  # overlapping, such as windows over a signal: write one after the other
            at = target.stride().index(step)
            return [
                part
                for i in range(target.shape[at])
                for part in _pieces(target.select(at, i), source.select(at, i))
            ]
        reach += (n - 1) * step
    return [(target, source)]


def _is_same_view(output: Tensor, shape: list[int], stride: list[int]) -> bool:
    """Whether an output shows its memory like the recorded tensor, so that digests compare."""
    if list(output.shape) == shape and list(output.stride()) == stride:
        return True
    # Or both are contiguous views of the whole buffer, with different shapes.
    recorded = torch.empty_strided(shape, stride, device="meta")
    return (
        output.is_contiguous() and recorded.is_contiguous() and output.numel() == recorded.numel()
    )


def _compared(output: Any, row: dict[str, Any] | None, load: Load) -> str:
    if not isinstance(output, Tensor):
        return "value"
    if row is None or not _is_same_view(output, row["shape"], row.get("stride", [])):
        return "unknown"
    if known := row.get("fingerprint"):
        own = fingerprint(output)
    else:
        known, own = row.get("sha256") or digest(load(row["file"])), digest(output)
    if not own:
        return "unknown"  # it has no elements that can be read
    return "equal" if own == known else "differs"
