"""How dtypes and numbers are shown, in lines of probes as in what the tool says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SHORT = (
    ("float8_", "f8"),
    ("bfloat", "bf"),
    ("float", "f"),
    ("complex", "c"),
    ("uint", "u"),
    ("int", "i"),
    ("bool", "b8"),
)


def short_dtype(dtype: torch.dtype | str | None) -> str:
    """The usual abbreviation of a dtype: `f32`, `bf16`, `i64`, `b8`, `c64`, `f8e4m3fn`."""
    name = str(dtype).removeprefix("torch.")
    for long, short in _SHORT:
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def number(value: float | int | None) -> str:
    """Format a statistic: integers in full, floats with four significant digits, None as `-`."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else format(value, ".4g")
