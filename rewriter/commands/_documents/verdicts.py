"""Lines of the model, as `list` prints them."""

from __future__ import annotations

from collections.abc import Iterable

from rewriter.core.documents import Entry, LineNumber, entry
from rewriter.dump.names import SourceLine


class SourceLineEntry(Entry, frozen=True, kw_only=True):
    """A line of the model."""

    file: str
    line: LineNumber
    function: str
    code: str


def source_lines(lines: Iterable[SourceLine]) -> tuple[SourceLineEntry, ...]:
    return tuple(entry(SourceLineEntry, line) for line in lines)
