"""Wrappers compiled for the GPU, with every launch replaced that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture import compile_case
from models import MODELS
from replacements import all_replaced

pytestmark = pytest.mark.gpu


# What its graph says of them is not known: a layout that Inductor chose, and random numbers.
KEPT = {"conv", "dropout"}
# The graph leaves open where equal elements are sorted to.
SORTS = {"scatter"}


@pytest.mark.parametrize("model", sorted({*MODELS} - {"frozen"}))
def test_launches_are_replaced(model: str, tmp_path: Path) -> None:
    graphs = compile_case(MODELS[model]("cuda")).graphs
    found = [all_replaced(x, tmp_path, integers=model not in SORTS) for x in graphs]
    assert any(one.found for one in found) != (model in KEPT)
