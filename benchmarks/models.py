"""The model on which probes are measured: a GPT for a GPU, and a smaller one for the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """A model and its input: `layers` blocks of width `width`, on `batch` rows of `tokens`."""

    layers: int
    width: int
    heads: int
    batch: int
    tokens: int
    dtype: str

    def __str__(self) -> str:
        shape = f"batch {self.batch}x{self.tokens}"
        return f"GPT of {self.layers} layers, d {self.width}, {shape}, {self.dtype}"


SIZES = {
    "cuda": Size(24, 1024, 16, 4, 512, "bfloat16"),
    "cpu": Size(6, 512, 8, 2, 128, "float32"),
    "cuda-small": Size(2, 256, 4, 2, 64, "bfloat16"),
    "cpu-small": Size(1, 64, 4, 2, 16, "float32"),
}


def build(size: Size, device: str) -> tuple[nn.Module, Tensor]:
    """Make the model and its input, with the same values in every process."""
    import torch
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before_attention = nn.LayerNorm(size.width)
            self.before_feed_forward = nn.LayerNorm(size.width)
            self.queries_keys_values = nn.Linear(size.width, 3 * size.width)
            self.project = nn.Linear(size.width, size.width)
            self.widen = nn.Linear(size.width, 4 * size.width)
            self.narrow = nn.Linear(4 * size.width, size.width)

        def forward(self, x: Tensor) -> Tensor:
            batch, tokens, width = x.shape
            mixed = self.queries_keys_values(self.before_attention(x))
            query, key, value = (
                part.view(batch, tokens, size.heads, width // size.heads).transpose(1, 2)
                for part in mixed.split(width, dim=2)
            )
            seen = scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.project(seen.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.narrow(gelu(self.widen(self.before_feed_forward(x))))

    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(size.layers)), nn.LayerNorm(size.width))
    dtype = getattr(torch, size.dtype)
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    x = torch.randn(size.batch, size.tokens, size.width).to(device=device, dtype=dtype)
    return model, x
