"""The fingerprint "nh128" as rewriter/runtime/cpp/engine/fingerprint.h defines it, once more."""

from __future__ import annotations

import struct

import torch

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_TILE = 4096  # vectors of 16 bytes


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31


def _table(number: int) -> list[int]:
    seed = _mix(number + 1)
    return [_mix((seed + (place + 1) * _GOLDEN) & _WORD) for place in range(64)]


_A0, _A1, _B0, _B1 = map(_table, range(4))
_KEYS = [
    (_A0[place % 64] ^ _B0[place // 64], _A1[place % 64] ^ _B1[place // 64])
    for place in range(_TILE)
]


def of_bytes(data: bytes) -> str:
    """The fingerprint of these bytes, in hexadecimal."""
    padded = data + bytes(-len(data) % 16)
    words = struct.unpack(f"<{len(padded) // 8}Q", padded)
    low = high = 0
    for number, start in enumerate(range(0, len(words), 2 * _TILE)):
        sum_low = sum_high = 0
        tile = words[start : start + 2 * _TILE]
        for a, b, (first, second) in zip(tile[::2], tile[1::2], _KEYS, strict=False):
            product = (a + first & _WORD) * (b + second & _WORD)
            sum_low += product & _WORD
            sum_high += product >> 64
        mixed = _mix(sum_low + (number + 1) * _GOLDEN & _WORD)
        second = _mix((sum_high & _WORD) ^ mixed)
        low = low + second & _WORD
        high = high + _mix(mixed + second & _WORD) & _WORD
    mixed = _mix(low + len(data) * _GOLDEN & _WORD)
    second = _mix(high ^ mixed)
    return f"{_mix(mixed + second & _WORD):016x}{second:016x}"


def fingerprint(tensor: torch.Tensor) -> str:
    """That of the bytes of the elements in row-major order, whatever strides and device."""
    resolved = tensor.resolve_conj().resolve_neg().cpu()
    flat = resolved.clone(memory_format=torch.contiguous_format).reshape(-1)
    return of_bytes(flat.view(torch.uint8).numpy().tobytes())
