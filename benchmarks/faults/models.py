"""Models in addition to those of the fixtures: odd sizes, half types, slices, a loss, attention.

The models of the fixtures have small, even sizes, for which generated code has no masks or tails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from benchmarks.faults.random_models import drawn
from benchmarks.models import SIZES, build

if TYPE_CHECKING:
    from models import Build, Case


class Tails(nn.Module):
    """Rows of 37 elements with reductions over both dimensions, a slice, padding, concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(37, 53), nn.Linear(53, 37)
        self.norm = nn.LayerNorm(37)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.norm(self.second(nn.functional.silu(self.first(x))) + x)
        padded = nn.functional.pad(h[:, 3:30] * 1.5, (2, 3), value=0.25)
        joined = torch.cat([h[:, :11], h[:, 20:] - h[:, :17]], 1)
        return h.softmax(-1), padded.cumsum(0), joined.var(0), (h / (1.5 + h.abs())).amax(1)


class Halves(nn.Module):
    """A block in a 16-bit floating-point type, with sums in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(48, 80, dtype=dtype), nn.Linear(80, 48, dtype=dtype)
        self.norm = nn.LayerNorm(48, dtype=dtype)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.down(nn.functional.gelu(self.up(self.norm(x)), approximate="tanh")) + x
        wide = h.float()
        return h, (wide * wide).mean(-1).rsqrt(), torch.sigmoid(wide - 0.5).to(h.dtype)


class Left(nn.Module):
    """Updates a buffer and an input, and joins two products in the memory of one result."""

    seen: torch.Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        # Not fewer: Inductor writes weights of up to 8 elements into its kernels as numbers.
        self.first, self.second = nn.Linear(24, 16, dtype=dtype), nn.Linear(24, 12, dtype=dtype)
        self.register_buffer("seen", torch.zeros(24, dtype=dtype))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)
        state.copy_(state * 0.5 + x.sum(1))
        joined = torch.cat([self.first(x), self.second(x)], 1)
        counts = (joined > state[:, None]).sum(1)
        return joined, (joined * state[:, None]).to(torch.bfloat16), counts


class Loss(nn.Module):
    """A training loss: embeddings, a projection, cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(29, 24), nn.Linear(24, 29)

    def forward(self, index: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.table(index))
        return nn.functional.cross_entropy(self.head(h * 0.75 + h.roll(1, 0)), target)


def _case(module: nn.Module, *inputs: torch.Tensor, train: bool = False) -> Case:
    from models import Case

    return Case(module if train else module.eval(), inputs, train=train)


def tails(device: str) -> Case:
    return _case(Tails(), torch.randn(19, 37))


def bfloat16(device: str) -> Case:
    return _case(Halves(torch.bfloat16), torch.randn(24, 48, dtype=torch.bfloat16))


def float16(device: str) -> Case:
    return _case(Halves(torch.float16), torch.randn(24, 48, dtype=torch.float16))


def left(device: str) -> Case:
    return _case(Left(torch.float32), torch.randn(12, 24), torch.randn(12))


def left_half(device: str) -> Case:
    inputs = (torch.randn(12, 24), torch.randn(12))
    return _case(Left(torch.bfloat16), *(x.bfloat16() for x in inputs))


def loss(device: str) -> Case:
    index = torch.arange(40) * 7 % 29
    return _case(Loss(), index, (index + 3) % 29, train=True)


def gpt(device: str) -> Case:
    module, x = build(SIZES["cpu-small"], device)
    return _case(module, x)


_OWN = {
    "tails": tails, "bfloat16": bfloat16, "float16": float16, "left": left,
    "left_half": left_half, "loss": loss, "gpt": gpt,
}  # fmt: skip

# The models to compile to each form.
FORMS: dict[str, tuple[str, ...]] = {
    "python": (
        "mlp", "dynamic", "transformer", "conv", "scatter", "customop", "dtypes", "mutate",
        "subgraph", *_OWN,
    ),
    "cpp_wrapper": (
        "mlp", "transformer", "conv", "tails", "bfloat16", "left", "left_half", "gpt", "loss",
    ),
    "aoti": ("mlp", "conv", "tails", "bfloat16", "left", "left_half"),
}  # fmt: skip


def build_of(name: str) -> Build:
    """The function that builds a model on a device, with a fixed seed."""
    from models import MODELS

    if name in MODELS:
        return MODELS[name]
    if name.startswith("random-"):
        return lambda _: drawn(int(name.removeprefix("random-"))).case()

    def seeded(device: str) -> Case:
        torch.manual_seed(0)
        with torch.device(device):
            return _OWN[name](device)

    return seeded
