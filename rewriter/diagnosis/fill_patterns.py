"""The patterns to fill memory with: 8 bytes for each probe, fill and dtype. Imports no torch.

`sanitize` compares runs with fill 0 and fill 1: a result that depends on filled memory differs.

For floating-point dtypes fill 0 is NaN, with a payload for each probe, and fill 1 finite numbers:
on a GPU, arithmetic with any NaN gives the same NaN, so two fills of NaN would give equal results.
Every second number is negative, since `relu` passes NaN and positive numbers through, while roots
and logarithms of negative numbers are NaN.

For integers fill 0 is large and even, out of range as an index, and fill 1 small and odd, mostly
within range: code that rejects or clamps large numbers would treat two large fills alike.
"""

from __future__ import annotations

import struct
from typing import Literal, get_args

# The probe of each: of bands beside memory, what it is allocated with, what it is freed with.
Filling = Literal["bounds", "poison", "stale"]
FILLINGS: tuple[Filling, ...] = get_args(Filling)
FILLS = (0, 1)
VARIABLE = "REWRITER_FILL"
OFF = "off"  # value of the variable: memory is left as it is
GUARD_VARIABLE = "REWRITER_GUARD"

_HALVES = {"float16", "complex32"}
_SINGLES = {"float32", "complex64"}
_WIDTHS = {f"{kind}{8 * width}": width for width in (1, 2, 4, 8) for kind in ("int", "uint")}
_DOUBLES = {"float64", "complex128"}
_NAN_OF_BYTES = {
    "float8_e4m3fn": (0x7F, 0xFF, 0x7F),
    "float8_e5m2": (0x7D, 0x7E, 0x7F),
    "float8_e4m3fnuz": (0x80, 0x80, 0x80),
    "float8_e5m2fnuz": (0x80, 0x80, 0x80),
    "float8_e8m0fnu": (0xFF, 0xFF, 0xFF),
}


def pattern(probe: Filling, fill: int, dtype: str) -> bytes:
    """The 8 bytes with which a probe fills memory. `dtype` is torch's name, such as `float32`."""
    place = FILLINGS.index(probe)
    if dtype == "bool":
        return bytes([fill]) * 8
    if dtype in _NAN_OF_BYTES:
        finite = (0x4B, 0x4D, 0x4E)[place]
        return bytes([finite | 0x80, finite] if fill else [_NAN_OF_BYTES[dtype][place]] * 2) * 4
    if dtype in _DOUBLES:
        nan = (0x7FF8_7FC1_7FC1_7FC1 + place).to_bytes(8, "little")
        return struct.pack("<d", -12345.678 - place) if fill else nan
    if dtype in _SINGLES:
        nan = (0x7FC1_7FC1 + place).to_bytes(4, "little")
        number = 12345.678 + place
        return struct.pack("<ff", -number, number) if fill else 2 * nan
    if dtype in _HALVES or dtype == "bfloat16":
        nan = (0x7FC1 + place).to_bytes(2, "little")
        number = 12344.0 + 8 * place
        halves = struct.pack("<ee", -number, number)
        if dtype == "bfloat16":
            number = 12352.0 + 64 * place
            halves = struct.pack("<f", -number)[2:] + struct.pack("<f", number)[2:]
        return 2 * halves if fill else 4 * nan
    if not fill:
        return bytes([(0x5A, 0x5C, 0x5E)[place]]) * 8
    width = _WIDTHS.get(dtype, 1)
    return (5, 1, 3)[place].to_bytes(width, "little") * (8 // width)


def is_choice(text: str) -> bool:
    """Whether a text chooses fills, as `rewriter/runtime/cpp/memory/patterns.h` reads it."""
    parts = (part.rpartition("=") for part in text.split(",") if part.strip())
    return text == OFF or all(
        number.strip() in ("0", "1") and (not equals or probe.strip() in FILLINGS)
        for probe, equals, number in parts
    )
