"""Values for a launch of which the dump has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rewriter.core.errors import RewriterError
from rewriter.reproduction.types import Tensor
from rewriter.reproduction.under.running import _with_values

FLOATS = Tensor("arg0_1", "in", "float32", (4, 8), (8, 1), "cpu", None, least=-2.0, most=-1.0)
INTEGERS = Tensor("arg1_1", "in", "int64", (16,), (1,), "cpu", None, least=0.0, most=99.0)


def _recorded(*tensors: Tensor) -> Any:
    given = {tensor.name: tensor for tensor in tensors}
    return SimpleNamespace(
        given=given, title="#0 kernel", launch=SimpleNamespace(index=0, line=3),
        wrapper=SimpleNamespace(name="w.py"), run=SimpleNamespace(path="w.dump"),
    )  # fmt: skip


def test_integers_may_be_indices_and_are_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(RewriterError, match="reads integers, which may be indices") as caught:
        _with_values(_recorded(FLOATS, INTEGERS), tmp_path)
    assert "--probe save --launches 0" in caught.value.hint


def test_what_is_too_large_is_not_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.reproduction.under.running._MOST", 127)
    with pytest.raises(RewriterError, match="larger than 1 GiB"):
        _with_values(_recorded(FLOATS), tmp_path)


def test_numbers_are_between_the_extremes_and_the_same_in_each_run() -> None:
    numbers = FLOATS.drawn(3)
    assert (numbers.shape, numbers.dtype) == ((4, 8), torch.float32)
    assert ((numbers >= -2) & (numbers <= -1)).all()
    assert torch.equal(numbers, FLOATS.drawn(3))
    assert torch.equal(replace(INTEGERS, most=0.0).drawn(0), torch.zeros(16, dtype=torch.int64))
    assert (INTEGERS.drawn(0) <= 99).all()
    assert replace(INTEGERS, dtype="bool").drawn(0).dtype == torch.bool


def test_saved_values_and_results_stay(tmp_path: Path) -> None:
    saved = replace(INTEGERS, file=tmp_path / "saved.pt")
    result = replace(FLOATS, name="buf0", role="out")
    given, made_up = _with_values(_recorded(FLOATS, saved, result), tmp_path)
    assert made_up == ("arg0_1",)
    assert (given["arg1_1"], given["buf0"]) == (saved, result)
    file = given["arg0_1"].file
    assert file is not None
    assert torch.load(file).shape == (4, 8)
