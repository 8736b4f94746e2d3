"""Facts about dtypes, by their names in a dump (`float32`), without torch."""

from __future__ import annotations

# The largest finite values, as in torch.finfo; beyond them is infinity, or NaN if a type has none.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
}

# Half a step from 1 to the next number: the largest relative error of rounding to nearest.
ROUNDING = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
}

# Bytes of an element, for types that have not 4.
_SIZES = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "complex32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip

_SHORT = (
    ("float8_", "f8"),
    ("bfloat", "bf"),
    ("float", "f"),
    ("complex", "c"),
    ("uint", "u"),
    ("int", "i"),
    ("bool", "b8"),
)

# The names in C++, without a namespace: torch/csrc/inductor/cpp_prefix.h, c10/util.
IN_CPP = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "bool": "bool",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def is_floating(dtype: object) -> bool:
    """Whether elements of a dtype may be NaN or infinite: floating-point and complex ones."""
    return str(dtype).startswith(("float", "bfloat", "complex"))


def short_dtype(dtype: object) -> str:
    """The usual abbreviation of a dtype: `f32`, `bf16`, `i64`, `b8`, `c64`, `f8e4m3fn`."""
    name = str(dtype).removeprefix("torch.")
    for long, short in _SHORT:
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def element_size(dtype: str) -> int:
    """The number of bytes of an element."""
    return 1 if dtype.startswith("float8") else _SIZES.get(dtype, 4)
