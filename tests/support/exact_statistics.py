"""Elements of tensors, and their statistics, by exact arithmetic: nothing of torch's own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

NAN, INF = math.nan, math.inf
EPSILON = 2.0**-52
TINY = Fraction(1, 2**1074)  # the step between subnormal numbers

NUMPY = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.uint16: np.uint16,
    torch.int16: np.int16,
    torch.uint32: np.uint32,
    torch.int32: np.int32,
    torch.uint64: np.uint64,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
}
# Exponent bits, mantissa bits, exponent bias, and which patterns are not finite.
FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}
FLOAT8_DTYPES = [getattr(torch, name) for name in FLOAT8]
if hasattr(torch, "float8_e8m0fnu"):
    FLOAT8_DTYPES.append(torch.float8_e8m0fnu)
COMPLEX = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
INTEGERS = [dtype for dtype in NUMPY if not dtype.is_floating_point and dtype != torch.bool]
DTYPES = [*NUMPY, torch.bfloat16, *FLOAT8_DTYPES, *COMPLEX]


def name_of(value: object) -> str:
    return str(value).removeprefix("torch.")


def float8(byte: int, dtype: torch.dtype) -> float:
    """The value of a float8 bit pattern, from the definition of the format."""
    name = name_of(dtype)
    if name == "float8_e8m0fnu":
        return NAN if byte == 0xFF else 2.0 ** (byte - 127)
    exponents, mantissas, bias, rule = FLOAT8[name]
    sign = -1.0 if byte >> 7 else 1.0
    exponent = (byte >> mantissas) & ((1 << exponents) - 1)
    mantissa = byte & ((1 << mantissas) - 1)
    if rule == "fnuz" and byte == 0x80:
        return NAN
    if rule == "fn" and byte & 0x7F == 0x7F:
        return NAN
    if rule == "ieee" and exponent == (1 << exponents) - 1:
        return NAN if mantissa else sign * INF
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissas)
    return sign * (1 + mantissa / (1 << mantissas)) * 2.0 ** (exponent - bias)


def decode(data: bytes, dtype: torch.dtype) -> list[Any]:
    """The elements of ``dtype`` in ``data`` as Python numbers; for complex dtypes magnitudes."""
    if dtype in COMPLEX:
        parts = decode(data, COMPLEX[dtype])
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [NAN if math.isnan(re) or math.isnan(im) else math.hypot(re, im) for re, im in pairs]
    if dtype in FLOAT8_DTYPES:
        return [float8(byte, dtype) for byte in data]
    if dtype == torch.bfloat16:
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        values: list[Any] = wide.view(np.float32).tolist()
        return values
    values = np.frombuffer(data, NUMPY[dtype]).tolist()
    return [int(value) for value in values] if dtype == torch.bool else values


def encode(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the bit patterns in ``data``."""
    if not data:
        return torch.zeros(0, dtype=torch.uint8).view(dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype)


def contents(tensor: torch.Tensor) -> bytes:
    """The bytes of the elements of ``tensor``, in order."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return bytes(flat.view(torch.uint8).tolist())


def is_near_limit(value: float, dtype: torch.dtype) -> bool:
    """Whether a finite number overflows in a type of 16 or 8 bits if it is doubled."""
    if not dtype.is_floating_point or dtype.itemsize > 2:
        return False
    largest = torch.finfo(dtype).max
    is_mask = dtype.itemsize == 2 and value == -largest
    return abs(value) > largest / 2 and not is_mask


def check(found: dict[str, Any], values: list[Any], dtype: torch.dtype) -> None:
    """Compare what a row says of a tensor with exact arithmetic on ``values``."""
    finite = [value for value in values if math.isfinite(value)]
    assert found["numel"] == len(values)
    assert found["nan"] == sum(map(math.isnan, values))
    assert found["inf"] == sum(map(math.isinf, values))
    assert found.get("of", "value") == ("magnitude" if dtype in COMPLEX else "value")
    assert found.get("near_limit", 0) == sum(is_near_limit(value, dtype) for value in finite)
    moments = found["min"], found["max"], found["mean"], found["std"]
    if not finite:
        assert moments == (None,) * 4
        return
    minimum, maximum, average, std = moments
    low, high = min(finite), max(finite)
    if dtype in COMPLEX:  # two implementations of hypot may round differently
        assert minimum == pytest.approx(low, rel=2 * EPSILON)
        assert maximum == pytest.approx(high, rel=2 * EPSILON)
    else:
        assert (minimum, maximum) == (low, high)
    assert type(minimum) is type(maximum) is type(low)
    # As integers of one scale: a power of two divides every fraction that is a float.
    ratios = [value.as_integer_ratio() for value in finite]
    scale = max(divisor for _, divisor in ratios)
    exact = [number * (scale // divisor) for number, divisor in ratios]
    count, total = len(exact), sum(exact)
    mean = Fraction(total, count * scale)
    largest = Fraction(max(map(abs, exact)), scale)
    assert type(average) is float
    assert abs(Fraction(average) - mean) <= largest * Fraction(4 * EPSILON) + 4 * TINY
    if len(finite) == 1:
        assert std is None
        return
    assert type(std) is float
    # The root of a fraction: scaled to integers, since squares may leave the range of float.
    squares = count * sum(number * number for number in exact) - total * total
    variance = Fraction(squares, count * (count - 1) * scale * scale)
    root = Fraction(math.isqrt(int(variance * 4**1200)), 2**1200)
    if dtype in COMPLEX:  # the magnitudes themselves are rounded
        slack = largest * Fraction(8 * EPSILON) + 4 * TINY
        assert math.isinf(std) or abs(Fraction(std) - root) <= slack
    elif math.isinf(std):
        assert root > Fraction(1.7e308)
    else:
        assert abs(Fraction(std) - root) <= root * Fraction(1e-11) + 4 * TINY


def data_of(dtype: torch.dtype, count: int, seed: int = 0) -> bytes:
    """Random bit patterns of ``count`` elements, valid ones for bool."""
    bits = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return bytes(bits & 1 if dtype == torch.bool else bits)


def adversarial() -> dict[str, torch.Tensor]:
    """Tensors that are hard to measure, by what is hard about them."""
    torch.manual_seed(0)
    noise = torch.randn(1500, dtype=torch.float64)
    cases = {
        "offset-float64": 1e6 + noise * 1e-3,
        "offset-float32": (1e6 + noise).to(torch.float32),
        "offset-bfloat16": (300 + noise).to(torch.bfloat16),
        "offset-negative": -1e12 + noise,
        "subnormal-float64": noise * 1e-310,
        "subnormal-float32": (noise * 1e-40).to(torch.float32),
        "subnormal-float16": (noise * 1e-6).to(torch.float16),
        "subnormal-bfloat16": (noise * 1e-39).to(torch.bfloat16),
        "small-and-zero": torch.where(noise > 0, noise * 1e-300, 0.0),
        "huge-float64": torch.sign(noise) * 1e308 * (1 + noise.abs() / 10),
        "huge-and-small": torch.tensor([1e308, 1e-308, -1e308] * 500, dtype=torch.float64),
        "growing": torch.logspace(-300, 300, 1500, dtype=torch.float64),
        "constant": torch.full((1500,), 0.1),
        "constant-float64": torch.full((1001,), -1e8 / 3, dtype=torch.float64),
        "noise-on-1e15": 1e15 + noise,
        "zeros": torch.zeros(1500),
        "negative-zeros": -torch.zeros(1500, dtype=torch.float16),
        "first-is-outlier": torch.cat([torch.tensor([1e30], dtype=torch.float64), noise]),
        "last-is-outlier": torch.cat([noise, torch.tensor([-1e30], dtype=torch.float64)]),
        "first-is-outlier-float32": torch.cat([torch.tensor([3e38]), noise.to(torch.float32)]),
        "first-is-nan": torch.cat([torch.tensor([NAN]), (1e6 + noise).to(torch.float32)]),
        "first-are-infinite": torch.cat([torch.full((100,), -INF), (1e6 + noise).float()]),
        "all-nan": torch.full((300,), NAN, dtype=torch.bfloat16),
        "all-infinite": torch.tensor([INF, -INF] * 100, dtype=torch.float16),
        "infinities": torch.where(noise > 1, INF, torch.where(noise < -1, -INF, noise)),
        "mask-bfloat16": torch.where(noise > 0, 0.0, -INF).to(torch.bfloat16),
        "one-finite": torch.tensor([NAN, INF, 7.0, -INF]),
        "zeros-and-infinite": torch.tensor([-INF, 0.0, -0.0], dtype=torch.float64),
        "int64-limits": torch.tensor([2**63 - 1, -(2**63), 0, 1, -1] * 100),
        "int64-near-limit": torch.arange(2**63 - 1000, 2**63 - 1, dtype=torch.int64),
        "uint64-above-2**53": torch.tensor([2**64 - 1, 2**63, 2**53 + 1], dtype=torch.uint64),
        "uint64-limits": torch.tensor([0, 2**64 - 1, 2**63, 1] * 50, dtype=torch.uint64),
        "int8-limits": torch.tensor([-128, 127, 0] * 500, dtype=torch.int8),
        "uint8-almost-constant": torch.tensor([255] * 1500 + [254], dtype=torch.uint8),
        "int16-limits": torch.tensor([-(2**15), 2**15 - 1, 5] * 500, dtype=torch.int16),
        "uint16-limits": torch.tensor([0, 2**16 - 1] * 500, dtype=torch.uint16),
        "int32-limits": torch.tensor([-(2**31), 2**31 - 1, 7] * 500, dtype=torch.int32),
        "uint32-limits": torch.tensor([0, 2**32 - 1] * 500, dtype=torch.uint32),
        "complex-nan-part": torch.tensor([complex(1, NAN), complex(INF, NAN), 3 + 4j]),
        "complex-infinite-part": torch.tensor([complex(1, -INF), complex(-INF, 0), 5 + 12j]),
        "complex128-huge": torch.complex(noise * 1e300, noise * 1e305),
        "complex128-small": torch.complex(noise * 1e-300, noise * 1e-305),
        "near-limit-float16": torch.cat([noise, 6e4 + noise, -5e4 - noise]).to(torch.float16),
        "near-limit-bfloat16": (noise * 1.5e38).to(torch.bfloat16),
        "lowest-float16": torch.where(noise > 0, 1.0, -65504).to(torch.float16),
        "lowest-bfloat16": torch.where(noise > 0, 1.0, torch.finfo(torch.bfloat16).min).bfloat16(),
        "halves-float16": torch.tensor([32736, 32752, 32768, -32752, -32768] * 60).half(),
        "saturated-float8": (noise * 400).clamp(-448, 448).to(torch.float8_e4m3fn),
        "scalar": torch.tensor(3.5),
        "nothing": torch.zeros(0, 3),
        "transposed": noise[:1225].view(35, 35).t(),
        "strided": noise.float()[1::3],
        "sliced": noise.to(torch.bfloat16).view(30, 50)[3:, 7:31],
        "unaligned": noise.to(torch.float16)[3:],
        "permuted": noise[:1440].view(4, 6, 12, 5).permute(2, 0, 3, 1),
        "expanded": noise[:30].view(30, 1).expand(30, 40),
        "expanded-first": noise[:30].to(torch.int8).expand(40, 30),
        "conjugate": torch.complex(noise, noise.flip(0)).conj(),
        "negative-bit": torch.complex(noise, noise.flip(0)).conj().imag,
    }
    for dtype in DTYPES:
        cases[f"bits-{name_of(dtype)}"] = encode(data_of(dtype, 1001), dtype)
    return cases
