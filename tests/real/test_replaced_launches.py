"""Wrappers compiled here, with every launch replaced that can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capture import Compiled
from models import MODELS
from replacements import all_replaced
from test_compiled import rare

# Why the launches of a model are never replaced; those of all others are.
KEPT = {
    "dropout": [
        "inductor_seeds_default draws random numbers",
        "inductor_random_default draws random numbers",
    ]
}
RUNNABLE = sorted({*MODELS} - {"frozen"})  # frozen weights come with the loader


@pytest.mark.parametrize("model", [rare(x) for x in RUNNABLE])
def test_all_launches_are_replaced(
    model: str, compiled: Callable[[str], Compiled], tmp_path: Path
) -> None:
    found = [all_replaced(graph, tmp_path) for graph in compiled(model).graphs]
    assert [x.reason for one in found for x in one.kept] == KEPT.get(model, [])
