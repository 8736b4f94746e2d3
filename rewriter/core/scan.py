"""Looks for what a text holds in time linear in it, whatever the text.

A regular expression for something with a beginning, a middle of any length and an end is quadratic
on a text with many beginnings and no end: each is read to the end of the text. Here the ends are
looked for once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


def spans(
    head: re.Pattern[AnyStr], tail: re.Pattern[AnyStr], text: AnyStr
) -> Iterator[tuple[re.Match[AnyStr], re.Match[AnyStr]]]:
    """Each match of `head` with the first match of `tail` behind it, none inside another.

    A tail whose group `skip` took part is passed over, as a comment with a bracket in it. A head
    whose tail is a group `stop` is none.
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
    return next((one for one in tail.finditer(text, start) if one.lastgroup != "skip"), None)


def last_word(text: str) -> str:
    """The letters, digits and underscores that a text ends with."""
    return text[len(text.rstrip(_LETTERS)) :]
