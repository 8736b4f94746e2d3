"""Searches any text for spans in linear time.

A regular expression with a beginning, a middle of any length and an end is quadratic on a text with
many beginnings and no end: it reads to the end of the text for each beginning. Here each end is
searched for once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


def spans(
    head: re.Pattern[AnyStr], tail: re.Pattern[AnyStr], text: AnyStr
) -> Iterator[tuple[re.Match[AnyStr], re.Match[AnyStr]]]:
    """Each match of `head` with the next match of `tail`, none inside another.

    A tail in which the group `skip` matched is ignored, such as a bracket in a comment. A head is
    ignored if the group `stop` matched in its tail.
    """
    tail_match: re.Match[AnyStr] | None = None
    end = 0
    for start in head.finditer(text):
        if start.start() < end:
            continue
        if tail_match is None or tail_match.start() < start.end():
            tail_match = _search(tail, text, start.end())
            if tail_match is None:
                return
        if tail_match.lastgroup != "stop":
            end = tail_match.end()
            yield start, tail_match


def _search(tail: re.Pattern[AnyStr], text: AnyStr, start: int) -> re.Match[AnyStr] | None:
    return next((match for match in tail.finditer(text, start) if match.lastgroup != "skip"), None)


def last_word(text: str) -> str:
    """The letters, digits and underscores at the end of a text."""
    return text[len(text.rstrip(_LETTERS)) :]
