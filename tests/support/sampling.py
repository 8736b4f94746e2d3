"""Products of parameters: a plain `pytest` runs a part, `pytest -m exhaustive` the rest.

The part is the same in every run. Of a product, each row is in it, and each column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

# Whether what is beyond the parts is left out of the collection, as it would be deselected: half of
# all tests. `conftest.py` sets it.
SAMPLES_ALONE = False


def in_sample(row: int, column: int, rows: int, columns: int) -> bool:
    """Whether a pair is in the part: along the diagonals of the table, wrapped around."""
    return column == row % columns if rows >= columns else row == column % rows


def sampled(
    rows: Sequence[Any], columns: Sequence[Any], *, id: Callable[[Any], str] = str
) -> list[Any]:
    """All pairs, as `pytest.mark.parametrize` takes them; those beyond the part are exhaustive."""
    return [
        pytest.param(
            row,
            column,
            id=f"{id(row)}-{id(column)}",
            marks=[]
            if in_sample(number, other, len(rows), len(columns))
            else [pytest.mark.exhaustive],
        )
        for number, row in enumerate(rows)
        for other, column in enumerate(columns)
        if not SAMPLES_ALONE or in_sample(number, other, len(rows), len(columns))
    ]


def neighbours(values: Sequence[Any], *, id: Callable[[Any], str] = str) -> list[Any]:
    """All pairs of values; each with itself and with the next one is in the part."""
    others = [*values[1:], values[0]]
    sample = [pair for two in zip(values, others, strict=True) for pair in ((two[0], two[0]), two)]
    return [
        pytest.param(
            *pair,
            id=f"{id(pair[0])}-{id(pair[1])}",
            marks=[] if pair in sample else [pytest.mark.exhaustive],
        )
        for pair in itertools.product(values, values)
        if not SAMPLES_ALONE or pair in sample
    ]


def one_in(count: int, values: Sequence[Any], *, id: Callable[[Any], str] = str) -> list[Any]:
    """Values as `pytest.mark.parametrize` takes them: the first, each `count`-th; others later."""
    return [
        pytest.param(value, id=id(value), marks=[pytest.mark.exhaustive] if number % count else [])
        for number, value in enumerate(values)
        if not SAMPLES_ALONE or number % count == 0
    ]
