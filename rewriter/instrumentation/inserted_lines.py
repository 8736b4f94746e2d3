"""Reads a Python module again after lines were inserted.

Without them it is the original, which parses. So it is enough that the inserted lines are
statements of their own, in a block of the original. In a C++ wrapper they are inside of a string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rewriter.locate.python.forms import form_of
from rewriter.locate.python.lines import Line, lines
from rewriter.locate.python.module import read, read_line
from rewriter.locate.python.syntax import PythonError


def fault(data: bytes, sign: bytes, is_python: bool) -> str:
    """What is wrong with a module in which inserted lines end in `sign`; empty if nothing is."""
    try:
        _check(data, sign, is_python)
    except PythonError as error:
        return f"line {error.line}: {error.message}"
    return ""


def _check(data: bytes, sign: bytes, is_python: bool) -> None:
    # The rows of the table of launches, by far the longest statement, are read one by one.
    row = re.compile(rb"^    (\{'launch': .*\}),  # " + sign + rb"(?:\r?\n|\r)", re.MULTILINE)
    for match in row.finditer(data):
        read_row = form_of(match[1].decode("latin-1"))
        if read_row is None or len(read_row[0].statement.body) != 1:
            raise PythonError("a row of the table of launches is no literal")
    text, mark = row.sub(b"", data).decode("latin-1"), sign.decode("latin-1")

    def is_inserted(line: Line) -> bool:
        marks = text.count(mark, line.start, line.end) if is_python else 0
        if marks not in (0, line.last - line.number + 1):
            raise PythonError("an inserted line is inside of another statement", line.number)
        return marks > 0

    def indent(line: Line) -> str:
        return text[line.start : line.body]

    before: Line | None = None
    awaited: str | None = None  # the indentation that the next line of the original must have
    for inserted, group in groupby(lines(text), is_inserted):
        found = list(group)
        first, last = found[0], found[-1]
        if inserted:
            _read_inserted(text, found)
            is_placed = before and not before.is_block and indent(before) == indent(first)
            awaited = None if is_placed else indent(first)
            continue
        if awaited is not None and (indent(first) != awaited or first.is_clause):
            raise PythonError("an inserted line is in no block", first.number)
        awaited, before = None, last


def _read_inserted(text: str, inserted: Sequence[Line]) -> None:
    """Read inserted lines. Dormant ones begin with `if`, and a standalone wrapper holds a runtime
    with blocks."""
    first = inserted[0]
    head = "if _:\n" if first.body > first.start else ""
    if any(line.is_block for line in inserted):
        try:
            read(head + text[first.start : inserted[-1].end])
        except PythonError as error:
            number = first.number + error.line - 1 - len(head.splitlines())
            raise PythonError(error.message, number) from error
    for line in inserted:
        read_line(text, line)
