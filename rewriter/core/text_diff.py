"""Differences of two texts, line by line, in the format of `diff -u`. Fast for large files.

Lines that occur once in each text are aligned first (patience diff, by Bram Cohen), and Myers'
algorithm fills the gaps: generated code repeats its lines over and over, and the shortest
difference of such text is rarely the change that somebody made.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from rewriter.core import align
from rewriter.core.terminal import escape

_CONTEXT = 3


@dataclass(frozen=True)
class Hunk:
    """Lines `a[slice(*a)]` that became `b[slice(*b)]`. Positions count from 0; one may be empty."""

    a: tuple[int, int]
    b: tuple[int, int]


def matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The positions of corresponding lines, in the order of both texts."""
    pairs: list[tuple[int, int]] = []
    from_a = from_b = 0
    for i, j in [*_anchors(a, b), (len(a), len(b))]:
        inside = align.matches(a[from_a:i], b[from_b:j])
        pairs += [(from_a + x, from_b + y) for x, y in inside]
        if i < len(a):
            pairs.append((i, j))
        from_a, from_b = i + 1, j + 1
    return pairs


def hunks(matched: Sequence[tuple[int, int]], len_a: int, len_b: int) -> Iterator[Hunk]:
    """Yield the gaps between the matches of two texts with these numbers of lines."""
    from_a = from_b = 0
    for i, j in [*matched, (len_a, len_b)]:
        if i > from_a or j > from_b:
            yield Hunk((from_a, i), (from_b, j))
        from_a, from_b = i + 1, j + 1


def unified(a: str, b: str, name_a: str, name_b: str) -> str:
    """The unified diff of two texts, empty if they are equal.

    Only line feeds end lines, as for `patch`; a carriage return is shown as it is.
    """
    lines_a, lines_b = _lines(a), _lines(b)
    if lines_a == lines_b:
        return ""
    changed = list(hunks(matches(lines_a, lines_b), len(lines_a), len(lines_b)))
    written = [f"--- {escape(name_a)}\n", f"+++ {escape(name_b)}\n"]
    for group in _groups(changed):
        start = max(group[0].a[0] - _CONTEXT, 0)
        end = min(group[-1].a[1] + _CONTEXT, len(lines_a))
        shift = group[0].b[0] - group[0].a[0]
        last = group[-1].b[1] + end - group[-1].a[1]
        written.append(f"@@ -{_range(start, end)} +{_range(start + shift, last)} @@\n")
        at = start
        for hunk in group:
            written += [f" {line}" for line in lines_a[at : hunk.a[0]]]
            written += [f"-{line}" for line in lines_a[slice(*hunk.a)]]
            written += [f"+{line}" for line in lines_b[slice(*hunk.b)]]
            at = hunk.a[1]
        written += [f" {line}" for line in lines_a[at:end]]
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in written
    )


def _anchors(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The longest chain, in the order of both texts, of lines that occur once in each."""
    count_a, count_b = Counter(a), Counter(b)
    there = {line: j for j, line in enumerate(b) if count_b[line] == 1}
    once = [(i, there[line]) for i, line in enumerate(a) if count_a[line] == 1 and line in there]
    # Patience sorting: `ends` has the smallest end among the chains of each length.
    ends: list[int] = []
    tops: list[int] = []  # the positions of these ends in `once`
    before: list[int] = []
    for position, (_, j) in enumerate(once):
        length = bisect.bisect_left(ends, j)
        ends[length : length + 1] = [j]
        tops[length : length + 1] = [position]
        before.append(tops[length - 1] if length else -1)
    chain = []
    position = tops[-1] if tops else -1
    while position >= 0:
        chain.append(once[position])
        position = before[position]
    return chain[::-1]


def _groups(changed: Sequence[Hunk]) -> Iterator[list[Hunk]]:
    """Group hunks that share lines of context, which are shown as one."""
    group: list[Hunk] = []
    for hunk in changed:
        if group and hunk.a[0] - group[-1].a[1] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(hunk)
    yield group


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _range(start: int, end: int) -> str:
    """A range as `diff` writes it: from 1, without the length 1, the line before if it is empty."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"


def style(line: str) -> str:
    """The style of a line of a unified diff on a terminal: `rewriter/core/terminal.py`."""
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")
