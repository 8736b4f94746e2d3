"""Figures in sentences for people."""

from __future__ import annotations

import pytest

from rewriter.core.text import percent


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "0%"),
        (0, 9, "0%"),
        (1, 1000, "1%"),
        (15, 26, "58%"),
        (1, 2, "50%"),
        (999, 1000, "99%"),
        (9, 9, "100%"),
    ],
)
def test_a_share_is_rounded_and_only_all_are_100_percent(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text
