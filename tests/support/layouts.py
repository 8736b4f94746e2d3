"""Tensors as the measuring code takes them, and what it says of one: cpp/engine/elements.h."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

MEASURED = struct.Struct("=4q2Q2d2Qq")
_LAYOUT = struct.Struct("@iiqPPP")
# The name of each dtype at the place of its number, as in cpp/engine/elements.h.
_NAMES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
    *("quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"),
    *("uint16", "uint32", "uint64"),
    *(f"uint{bits}" for bits in range(1, 8)),
    *(f"int{bits}" for bits in range(1, 8)),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
)


@cache
def _dtype_numbers() -> dict[torch.dtype, int]:
    return {
        getattr(torch, name): number for number, name in enumerate(_NAMES) if hasattr(torch, name)
    }


class Layouts:
    """The layouts of tensors on the CPU, `all` as an array."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [tensor.resolve_conj().resolve_neg() for tensor in tensors]
        self._sizes: list[Any] = []
        self.all = b"".join(map(self._layout, self.tensors))

    def _layout(self, tensor: torch.Tensor) -> bytes:
        dim = tensor.dim()
        self._sizes.append((ctypes.c_int64 * (2 * dim))(*tensor.shape, *tensor.stride()))
        sizes, number = ctypes.addressof(self._sizes[-1]), _dtype_numbers()[tensor.dtype]
        return _LAYOUT.pack(number, dim, tensor.numel(), sizes, sizes + 8 * dim, tensor.data_ptr())

    def room(self) -> Any:
        """For a `Measured` of each."""
        return ctypes.create_string_buffer(MEASURED.size * len(self.tensors))

    def decode(self, room: Any) -> list[dict[str, Any]]:
        """What was measured, by the names in a row of a dump."""
        rows = zip(self.tensors, MEASURED.iter_unpack(room.raw), strict=True)
        return [_decode(row, tensor) for tensor, row in rows]


def _decode(row: tuple[Any, ...], tensor: torch.Tensor) -> dict[str, Any]:
    finite, nan, positive, negative, low, high, mean, deviation, first, second, near = row
    found = {"fingerprint": f"{first:016x}{second:016x}"}
    if finite == -1:
        return found
    counts = {"numel": tensor.numel(), "nan": nan, "+inf": positive, "-inf": negative, "near": near}
    none = dict.fromkeys(("min", "max", "mean", "std"))
    if not finite:
        return found | counts | none
    ends = (low, high) if tensor.dtype in (torch.int64, torch.uint64) else _floats(low, high)
    std = deviation if finite > 1 else None
    return found | counts | {"min": ends[0], "max": ends[1], "mean": mean, "std": std}


def _floats(*bits: int) -> tuple[float, ...]:
    return struct.unpack(f"{len(bits)}d", struct.pack(f"{len(bits)}Q", *bits))
