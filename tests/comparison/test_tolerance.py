"""Tolerances: those of the dtypes are torch's own, those of the command line replace them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import _comparison

from rewriter.comparison.dumps.tolerance import Tolerances, default, number
from rewriter.comparison.dumps.types import Tolerance
from rewriter.core.errors import RewriterError

EXACT = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
EXACT += ("float8_e8m0fnu",)  # steps of a power of 2
LISTED = {str(dtype).removeprefix("torch."): dtype for dtype in _comparison._DTYPE_PRECISIONS}
FLOATS8 = sorted({x for x in dir(torch) if x.startswith("float8_")} - set(EXACT))


@pytest.mark.parametrize("b", [*LISTED, "int64", "bool"])
@pytest.mark.parametrize("a", [*LISTED, "int64", "bool"])
def test_defaults_are_those_of_assert_close(a: str, b: str) -> None:
    expected = _comparison.default_tolerances(getattr(torch, a), getattr(torch, b))
    assert (default(a, b).rtol, default(a, b).atol) == expected


@pytest.mark.parametrize("dtype", EXACT)
def test_integers_are_exact(dtype: str) -> None:
    assert default(dtype, dtype) == Tolerance(0.0, 0.0)
    assert default(dtype, "float32") == default("float32", dtype) == Tolerance(1.3e-6, 1e-5)


@pytest.mark.parametrize("dtype", FLOATS8)
def test_8_bit_floats_may_be_a_step_apart(dtype: str) -> None:
    one = torch.ones(1).to(getattr(torch, dtype)).view(torch.uint8)
    assert default(dtype, dtype).rtol == (one + 1).view(getattr(torch, dtype)).float().item() - 1
    assert default(dtype, "bfloat16") == Tolerance(default(dtype, dtype).rtol, 1e-5)


@pytest.mark.parametrize("text", ["", "k", "-1", "nan", "inf", "1,2"])
def test_bad_text_is_named(text: str) -> None:
    assert number(" 1e-3") == 1e-3
    with pytest.raises(RewriterError) as caught:
        number(text)
    assert caught.value.slug == "bad-tolerance"
    assert repr(text) in caught.value.message
    assert caught.value.code == 2


def test_either_number_can_be_replaced_alone() -> None:
    assert Tolerances(rtol=0.5).of("float32", "float32") == Tolerance(0.5, 1e-5)
    assert Tolerances(atol=0.0).of("bfloat16", "float32") == Tolerance(1.6e-2, 0.0)
    assert Tolerances().of("int64", "int64") == Tolerance(0.0, 0.0)
