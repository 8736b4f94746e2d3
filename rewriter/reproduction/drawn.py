"""Random values for a tensor whose own are not in the dump, or are not to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.reproduction.types import Tensor

if TYPE_CHECKING:
    import torch


def drawn(tensor: Tensor, seed: int) -> torch.Tensor:
    """Values between the extremes of a tensor, always the same for a seed. Raises `RewriterError`
    if torch has no such dtype."""
    import torch

    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise RewriterError(
            "corrupt-dump",
            f"this torch has no dtype {tensor.dtype}",
            hint="Use the torch that recorded the dump.",
        )
    generator = torch.Generator().manual_seed(seed)
    least, most = tensor.least, tensor.most
    if dtype.is_floating_point or dtype.is_complex:
        least, most = (0.0, 1.0) if least is None or most is None else (least, most)
        shares = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return (least + (most - least) * shares).to(dtype)
    first, last = (0, 1) if dtype == torch.bool else (int(least or 0), int(most or 0))
    return torch.randint(first, max(first, last) + 1, tensor.shape, generator=generator).to(dtype)
