"""Facts about dtypes, by the names that a dump has for them (`float32`), without torch."""

from __future__ import annotations

# The largest finite values; beyond them is infinity, or NaN where a type has none. torch.finfo has
# them.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
}


def is_floating(dtype: object) -> bool:
    """Whether elements of a dtype may be NaN or infinite: floating-point and complex ones."""
    return str(dtype).startswith(("float", "bfloat", "complex"))
