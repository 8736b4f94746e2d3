"""The model of the picture: in its fifth block a product overflows, and softmax makes NaN of it."""

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.norm, self.gain = nn.LayerNorm(width), gain
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        scores = (self.query(y) * self.gain) @ y.transpose(-1, -2)
        x = x + scores.softmax(-1) @ self.value(y)
        return x + self.down(nn.functional.gelu(self.up(x)))


model = nn.Sequential(*(Block(64, 30_000.0 if n == 4 else 1.0) for n in range(6))).half()
with torch.no_grad():
    torch.compile(model)(torch.randn(2, 32, 64, dtype=torch.float16))
