"""The model of the service: small, so that the cost of probes is a large part of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

ROWS, COLUMNS = 8, 256


def build(device: str) -> tuple[nn.Module, Tensor]:
    """Make the model and an input, with the same values in every process."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(COLUMNS, COLUMNS), nn.GELU(), nn.Linear(COLUMNS, COLUMNS), nn.GELU()]
    model = nn.Sequential(*layers, nn.LayerNorm(COLUMNS), nn.Linear(COLUMNS, 16), nn.Softmax(-1))
    model = model.to(device).eval().requires_grad_(False)
    return model, torch.randn(ROWS, COLUMNS, device=device)
