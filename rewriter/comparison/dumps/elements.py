"""The elements of a tensor as a vector, in memory order."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import torch

from rewriter.core.errors import RewriterError


@cache
def check(dtype: torch.dtype) -> None:
    """Raise `RewriterError` if elements of this type have no numeric value of their own."""
    try:
        torch.zeros(1, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype).to(torch.complex128)
    except (RuntimeError, NotImplementedError) as error:
        raise RewriterError(
            "unsupported-dtype",
            f"tensors of {str(dtype).removeprefix('torch.')} cannot be compared: "
            "an element has no numeric value of its own",
            hint="Expected floating-point, complex, integer or bool tensors. Compare this one by "
            "its hash: record both dumps with `--probe hash`.",
        ) from error


def memory_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of a tensor, from the largest stride to the smallest."""
    return tuple(
        sorted(range(len(shape)), key=lambda i: (-stride[i], i) if shape[i] > 1 else (0, i))
    )


def elements(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """The elements from one position to another, in row-major order; copies no others."""
    if tensor.is_contiguous():
        return tensor.view(-1)[first:last]
    inner = tensor[0].numel()
    row, end = first // inner, -(-last // inner)
    if end - row == 1:
        return elements(tensor[row], first - row * inner, last - row * inner)
    if first % inner == last % inner == 0:
        return tensor[row:end].reshape(-1).contiguous()
    # Part of a row, then whole rows, then part of a row.
    cuts = sorted({first, -(-first // inner) * inner, last // inner * inner, last})
    return torch.cat([elements(tensor, *cut) for cut in pairwise(cuts)])
