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
from rewriter.reproduction.under.alone import _random, _with_values

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
    monkeypatch.setattr("rewriter.reproduction.under.alone._MOST", 127)
    with pytest.raises(RewriterError, match="larger than 1 GiB"):
        _with_values(_recorded(FLOATS), tmp_path)


def test_numbers_are_between_the_extremes_and_the_same_in_each_run() -> None:
    drawn = _random(FLOATS, 3)
    assert drawn is not None
    assert (drawn.shape, drawn.dtype) == ((4, 8), torch.float32)
    assert ((drawn >= -2) & (drawn <= -1)).all()
    again = _random(FLOATS, 3)
    assert again is not None
    assert torch.equal(drawn, again)
    same = _random(replace(INTEGERS, most=0.0), 0)
    assert same is not None
    assert torch.equal(same, torch.zeros(16, dtype=torch.int64))
    truth = _random(replace(INTEGERS, dtype="bool"), 0)
    assert truth is not None
    assert truth.dtype == torch.bool


def test_saved_values_and_results_stay(tmp_path: Path) -> None:
    saved = replace(INTEGERS, file=tmp_path / "saved.pt")
    result = replace(FLOATS, name="buf0", role="out")
    given, made_up = _with_values(_recorded(FLOATS, saved, result), tmp_path)
    assert made_up == ("arg0_1",)
    assert (given["arg1_1"], given["buf0"]) == (saved, result)
    file = given["arg0_1"].file
    assert file is not None
    assert torch.load(file).shape == (4, 8)
