"""The random numbers that Inductor's kernels draw: Philox, of which seed and place say everything.

Of torch's own generators neither is known: what those draw is not evaluated.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, rounded

NAMES = frozenset({"inductor_lookup_seed", "inductor_random", "inductor_randint"})
_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57  # of Philox 4x32-10, as its keys below
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_SCALE = 4.6566127342e-10  # both devices: what is below 2**31, times this, is below 1


def drawn(name: str, args: Any, kwargs: dict[str, Any], *, on_gpu: bool) -> Bounded:
    """What one of the operators in `NAMES` gives.

    Raises `UncheckedError` where its arguments are not the ones that it has.
    """
    if name == "inductor_lookup_seed":
        seeds, index = args
        return Bounded(seeds.value.reshape(-1)[index].reshape(()), None, torch.int64)
    size, seed = (args[0], args[1]) if name == "inductor_random" else (args[2], args[3])
    if not isinstance(seed, Bounded) or seed.value.numel() != 1:
        raise UncheckedError("its seed is not a number alone")  # aligned with eager
    first = kwargs.get("offset", 0)
    places = torch.arange(first, first + math.prod(size), dtype=torch.int64) & _LOW
    words = _philox(int(seed.value), places, on_gpu=on_gpu)
    if name == "inductor_randint":
        low, high = args[:2]
        return Bounded(_integers(words, low, high).reshape(size), None, torch.int64)
    if args[2] == "rand":
        return Bounded(_uniform(words[0], on_gpu=on_gpu).reshape(size).double(), None)
    return _normal(words, on_gpu=on_gpu, size=size)


def _philox(seed: int, places: torch.Tensor, *, on_gpu: bool) -> list[torch.Tensor]:
    """Four words of 32 bits for each place. Kernels for the CPU know half of the seed."""
    words = [places, *(torch.zeros_like(places) for _ in range(3))]
    keys = [seed & _LOW, (seed >> 32) & _LOW if on_gpu else 0]
    for _ in range(_ROUNDS):
        products = [x * factor for x, factor in zip(words[::2], _MULTIPLIERS, strict=True)]
        high, low = [(x >> 32) & _LOW for x in products], [x & _LOW for x in products]
        words = [high[1] ^ words[1] ^ keys[0], low[1], high[0] ^ words[3] ^ keys[1], low[0]]
        keys = [(key + step) & _LOW for key, step in zip(keys, _WEYL, strict=True)]
    return words


def _uniform(word: torch.Tensor, *, on_gpu: bool) -> torch.Tensor:
    """In [0, 1), in float32 as the kernels have it."""
    half = _LOW >> 1  # of a negative number a GPU takes the complement
    below = torch.where(word > half, _LOW - word, word) if on_gpu else word & half
    return below.to(torch.float32) * torch.tensor(_SCALE, dtype=torch.float32)


def _normal(words: list[torch.Tensor], *, on_gpu: bool, size: Any) -> Bounded:
    one, two = (_uniform(word, on_gpu=on_gpu) for word in words[:2])
    one, two = (one.clamp_min(1.0e-7), two) if on_gpu else (1 - one, 1 - two)
    length = (-2.0 * one.double().log()).sqrt()
    value = (length * (2.0 * math.pi * two.double()).cos()).reshape(size)
    eps = torch.finfo(torch.float32).eps
    # The argument of the cosine, which is at most 2 pi, is rounded, too.
    angle = length.reshape(size) * 2.0 * math.pi * eps
    return rounded(value, angle + 4 * eps * length.reshape(size), torch.float32, [], roundings=10.0)


def _integers(words: list[torch.Tensor], low: int, high: int) -> torch.Tensor:
    """64 bits, without a sign, modulo the range."""
    wanted = high - low
    upper, lower = words[1] % wanted, words[0] % wanted
    if wanted >= 1 << 31:
        raise UncheckedError("it draws of a range that is not computed here")
    return (upper * ((1 << 32) % wanted) + lower) % wanted + low
