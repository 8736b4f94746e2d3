"""The custom operators of the model `customop`, which recorded wrappers call."""

from __future__ import annotations

from torch import Tensor
from torch.library import Library

LIBRARY = Library("corp", "FRAGMENT")
LIBRARY.define("scale(Tensor x, float factor, int power) -> Tensor")
LIBRARY.define("inc_(Tensor(a!) x) -> ()")


def _scale(x: Tensor, factor: float, power: int) -> Tensor:
    return (x * factor) ** power


def _inc(x: Tensor) -> None:
    x.add_(1)


LIBRARY.impl("scale", _scale, "CompositeExplicitAutograd")
LIBRARY.impl("inc_", _inc, "CompositeExplicitAutograd")
