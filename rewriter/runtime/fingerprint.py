"""The fingerprint "nh128" computed by torch's operators, for where there is no engine.

The result equals that of `cpp/engine/fingerprint.h`. Only `text` waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

NAME = "nh128"
VERSION = 1
_VECTOR = 16  # bytes
_TILE = 1 << 16  # bytes
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1
_LOW = 0xFFFFFFFF


def text(total: Tensor | list[int], size: int) -> str:
    """The fingerprint in hexadecimal, from the total of all tiles and the size in bytes."""
    low, high = total.tolist() if isinstance(total, Tensor) else total
    first = _mix((low + size * _GOLDEN) & _MASK)
    second = _mix((high & _MASK) ^ first)
    return f"{_mix((first + second) & _MASK):016x}{second:016x}"


def total(pieces: Iterator[Tensor], device: torch.device) -> Tensor:
    """Sum up the tiles of ``pieces``: the elements in row-major order, as contiguous tensors.

    Returns an int64 tensor of two elements on the device.
    """
    result = torch.zeros(2, dtype=torch.int64, device=device)
    rest = torch.empty(0, dtype=torch.uint8, device=device)
    tile = 0
    for piece in pieces:
        data = _bytes(piece)
        data = torch.cat([rest, data]) if rest.numel() else data
        whole = data.numel() // _TILE
        if whole:
            result += _tiles(data[: whole * _TILE].view(whole, -1), tile)
            tile += whole
        rest = data[whole * _TILE :]
    if rest.numel():
        padding = torch.zeros(-rest.numel() % _VECTOR, dtype=torch.uint8, device=device)
        result += _tiles(torch.cat([rest, padding]).view(1, -1), tile)
    return result


def _bytes(piece: Tensor) -> Tensor:
    flat = torch.view_as_real(piece) if piece.is_complex() else piece
    # A tensor of one element may have any stride, which `view` would reject.
    flat = flat.reshape(-1).as_strided((flat.numel(),), (1,)).view(torch.uint8)
    return flat if flat.storage_offset() % 8 == 0 else flat.clone()  # for the view as int64


def _tiles(data: Tensor, number: int) -> Tensor:
    """What tiles add to the total. ``data`` has one row of bytes per tile; ``number`` is the number
    of the first one."""
    if data.storage_offset() % 8:
        data = data.clone()
    words = data.view(torch.int64).view(data.shape[0], -1, 2)
    place = torch.arange(words.shape[1], device=data.device)
    column, row = place % 64, place // 64
    tables = _tables(data.device)
    a = words[..., 0] + (tables[0][column] ^ tables[2][row])
    b = words[..., 1] + (tables[1][column] ^ tables[3][row])
    low = (a * b).sum(1)
    high = _upper(a, b).sum(1)
    numbers = torch.arange(number + 1, number + 1 + data.shape[0], device=data.device)
    first = _mixed(low + numbers * _signed(_GOLDEN))
    second = _mixed(high ^ first)
    return torch.stack([second.sum(), _mixed(first + second).sum()])


def _upper(a: Tensor, b: Tensor) -> Tensor:
    """The upper 64 bits of the products of unsigned 64-bit integers, stored as int64."""
    a_low, b_low = a & _LOW, b & _LOW
    a_high, b_high = a >> 32 & _LOW, b >> 32 & _LOW
    middle = a_high * b_low + (a_low * b_low >> 32 & _LOW)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> 32 & _LOW) + (other >> 32 & _LOW)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ (x >> 30 & (1 << 34) - 1)) * _signed(_FIRST)
    x = (x ^ (x >> 27 & (1 << 37) - 1)) * _signed(_SECOND)
    return x ^ (x >> 31 & (1 << 33) - 1)


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * _FIRST & _MASK
    x = (x ^ x >> 27) * _SECOND & _MASK
    return x ^ x >> 31


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@cache
def _tables(device: torch.device) -> Tensor:
    """The key tables A0, A1, B0 and B1 of `cpp/engine/fingerprint.h`, shape (4, 64)."""
    seeds = [_mix(table + 1) for table in range(4)]
    words = [[_mix((seed + (i + 1) * _GOLDEN) & _MASK) for i in range(64)] for seed in seeds]
    signed = [[_signed(word) for word in row] for row in words]
    return torch.tensor(signed, dtype=torch.int64, device=device)
