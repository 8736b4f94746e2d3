"""What a selection names and no wrapper has is told, rather than ignored."""

from __future__ import annotations

from typing import Any

import pytest

from artifacts import FIXTURES
from rewriter.instrumentation.instrument import instrument
from rewriter.instrumentation.select import select

MLP = next(x for x in FIXTURES if str(x) == "cpu-torch2.13/mlp")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"allow": "*gelu*:buf1"}, (), id="a value of a launch"),
        pytest.param({"allow": "inputs:arg0_1"}, (), id="an input"),
        pytest.param({"allow": "*gelu*:buf99"}, ("value *gelu*:buf99 (--allow)",), id="no buffer"),
        pytest.param({"allow": "nosuch*:buf1"}, ("value nosuch*:buf1 (--allow)",), id="no kernel"),
        pytest.param({"launches": [0, 77]}, ("launch 77",), id="no launch"),
        pytest.param({"kernels": "*gelu*,nosuch"}, ("kernel nosuch",), id="no kernel of --kernels"),
    ],
)
def test_it_is_told(options: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert instrument(MLP.path, select("nan", **options)).plan.unmatched == expected
