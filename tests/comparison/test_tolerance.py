"""Tolerances: those of the dtypes are torch's own, those of the command line replace them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import _comparison

from rewriter.comparison.dumps.tolerance import Override, Tolerances, default, number, parse
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


@pytest.mark.parametrize(
    ("text", "kernels", "rtol", "atol"),
    [
        ("*=1e-3,1e-5", "*", 1e-3, 1e-5),
        ("triton_*_fused=0,0.5", "triton_*_fused", 0.0, 0.5),
        ("a=b=1,2", "a=b", 1.0, 2.0),
        ("extern_kernels.mm= 1 , 2 ", "extern_kernels.mm", 1.0, 2.0),
    ],
)
def test_parse(text: str, kernels: str, rtol: float, atol: float) -> None:
    assert parse(text) == Override(kernels, Tolerance(rtol, atol))


@pytest.mark.parametrize(
    "text",
    ["", "1e-3", "k=1e-3", "=1,2", "k=1,2,3", "k=,", "k=a,1", "k=1,-1", "k=nan,0", "k=1,inf"],
)
def test_bad_text_is_named(text: str) -> None:
    with pytest.raises(RewriterError) as caught:
        parse(text)
    assert caught.value.slug == "bad-tolerance"
    assert repr(text) in caught.value.message
    assert caught.value.code == 2


def test_a_number_alone() -> None:
    assert number("1e-3") == 1e-3
    with pytest.raises(RewriterError, match="'-1'"):
        number("-1")


def test_the_last_override_that_matches_wins() -> None:
    tolerances = Tolerances(rtol=0.5, overrides=(parse("*=1,1"), parse("triton_*=2,2")))
    assert tolerances.of("triton_poi_0", "float32", "float32") == Tolerance(2.0, 2.0)
    assert tolerances.of("cpp_fused_0", "float32", "float32") == Tolerance(1.0, 1.0)


def test_either_number_can_be_replaced_alone() -> None:
    assert Tolerances(rtol=0.5).of("k", "float32", "float32") == Tolerance(0.5, 1e-5)
    assert Tolerances(atol=0.0).of("k", "bfloat16", "float32") == Tolerance(1.6e-2, 0.0)
    assert Tolerances().of("k", "int64", "int64") == Tolerance(0.0, 0.0)
