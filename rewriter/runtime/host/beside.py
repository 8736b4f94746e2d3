"""How long two wrappers take for the same call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

_LEAST, _MOST = 3, 200  # calls of each
_LONG = 2.0  # seconds after which no further ones begin


def seconds(
    one: Callable[[list[Any]], Any], other: Callable[[list[Any]], Any], inputs: list[Any]
) -> list[float]:
    """The medians of calls in turns, the first of each left out."""
    times: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while len(times[0]) <= _LEAST or (
        len(times[0]) < _MOST and time.perf_counter() - begun < _LONG
    ):
        for call, taken in zip((one, other), times, strict=True):
            started = time.perf_counter()
            call(list(inputs))
            synchronize()
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken[1:]) for taken in times]


def synchronize() -> None:
    """Wait for the GPU, if it is used."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
