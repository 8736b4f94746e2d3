"""The search for the fewest launches that make a difference, and how many runs it takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.diagnosis.verification.replacing.search import smallest


def searched(count: int, needed: frozenset[int]) -> tuple[tuple[int, ...], int]:
    """What is found where all of some are needed, and in how many trials."""
    asked: list[frozenset[int]] = []

    def trial(chosen: frozenset[int]) -> bool:
        assert chosen not in asked, "the same is tried twice"
        asked.append(chosen)
        return needed <= chosen

    return smallest(count, trial), len(asked)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 64, 100])
def test_one_is_found_by_halves(count: int) -> None:
    for one in range(count):
        found, trials = searched(count, frozenset([one]))
        assert found == (one,)
        assert trials <= math.ceil(math.log2(count)) + (count > 1)


@st.composite
def _needed(draw: st.DrawFn) -> tuple[int, frozenset[int]]:
    count = draw(st.integers(2, 300))
    some = st.frozensets(st.integers(0, count - 1), min_size=2, max_size=8)
    return count, draw(some)


@given(_needed())
def test_several_are_found_together(case: tuple[int, frozenset[int]]) -> None:
    count, needed = case
    found, trials = searched(count, needed)
    assert found == tuple(sorted(needed))
    # The run as it is, and the one with all of them replaced, come before.
    assert trials + 2 <= 2 * len(needed) * (1 + math.log2(count))


def test_no_one_of_what_is_found_can_be_left_out_where_several_ways_help() -> None:
    def trial(chosen: frozenset[int]) -> bool:
        return {1, 6} <= chosen or {2, 9, 4} <= chosen

    found = frozenset(smallest(12, trial))
    assert trial(found)
    assert not any(trial(found - {one}) for one in found)
