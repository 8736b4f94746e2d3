"""Guard bands and what memory is filled with, without a wrapper."""

from __future__ import annotations

import pytest
import torch

from rewriter.diagnosis import fill_patterns as patterns
from rewriter.runtime.tensors import is_shared

DTYPES = [
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
]
NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
@pytest.mark.parametrize("probe", patterns.FILLINGS)
def test_fills(probe: patterns.Filling, dtype: torch.dtype) -> None:
    """NaN and finite, even and odd; no two probes share a pattern, where a type has several."""
    name = str(dtype).removeprefix("torch.")
    first, second = (
        torch.frombuffer(bytearray(patterns.pattern(probe, number, name) * 2), dtype=dtype)
        for number in patterns.FILLS
    )
    if not dtype.is_floating_point and not dtype.is_complex:
        assert first.tolist()[0] % 2 == 0
        assert second.tolist()[0] % 2 == 1
        return
    numbers = [
        torch.view_as_real(x).double() if dtype.is_complex else x.double() for x in (first, second)
    ]
    assert bool(numbers[0].isnan().all())
    assert bool(numbers[1].isfinite().all())
    assert bool((numbers[1] != 0).all())
    if (
        dtype.itemsize <= 4 and name != "float8_e8m0fnu"
    ):  # what a kernel keeps of some it has of others
        assert {float(x) for x in numbers[1].flatten().sign()} == {-1.0, 1.0}
    if dtype.itemsize > 1:
        others = [patterns.pattern(x, number, name) for x in patterns.FILLINGS for number in (0, 1)]
        assert len(set(others)) == len(others)


@pytest.mark.parametrize("text", ["2", "print=1", "bounds", "bounds=x", "=1", "-1", "0,off"])
def test_fills_that_are_none(text: str) -> None:
    assert not patterns.is_choice(text)


@pytest.mark.parametrize(
    "text", ["", "0", "1", "bounds=1", "poison=1, stale=1", "1,poison=0", "off"]
)
def test_fills_by_probe(text: str) -> None:
    assert patterns.is_choice(text)


def test_memory_that_another_tensor_has() -> None:
    alone = torch.empty(4)
    assert not is_shared(alone)
    view = alone[1:]
    assert is_shared(alone)
    assert is_shared(view)
    other = torch.empty(0).set_(alone.untyped_storage())
    del view
    assert is_shared(alone)
    del other
    assert not is_shared(alone)
