"""The model of the service: small, so that what is added to a request is much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

ROWS, COLUMNS = 8, 256


def build(device: str) -> tuple[nn.Module, Tensor]:
    """The model and an input, the same in every process."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(COLUMNS, COLUMNS), nn.GELU(), nn.Linear(COLUMNS, COLUMNS), nn.GELU()]
    model = nn.Sequential(*layers, nn.LayerNorm(COLUMNS), nn.Linear(COLUMNS, 16), nn.Softmax(-1))
    model = model.to(device).eval().requires_grad_(False)
    return model, torch.randn(ROWS, COLUMNS, device=device)
