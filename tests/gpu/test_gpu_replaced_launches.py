"""Wrappers compiled for the GPU, with every launch replaced that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture import compile_case
from models import MODELS
from replacements import all_replaced

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("model", sorted({*MODELS} - {"frozen"}))
def test_launches_are_replaced(model: str, tmp_path: Path) -> None:
    found = [all_replaced(x, tmp_path) for x in compile_case(MODELS[model]("cuda")).graphs]
    assert any(one.found for one in found)
