"""Reads a wrapper again after lines were inserted."""

from __future__ import annotations

import re

from rewriter.locate.python.forms import form_of
from rewriter.locate.python.module import read
from rewriter.locate.python.syntax import PythonError


def check(data: bytes, mark: bytes, *, alone: bool) -> None:
    """Check that a wrapper still parses. Raises `PythonError`.

    Inserted lines end in `mark`. With `alone`, they are statements of their own: no other statement
    may have one inside. The rows of the table of launches, by far the longest statement, are read
    one by one.
    """
    text, sign = data.decode("latin-1"), mark.decode("latin-1")
    row = re.compile(rf"^    (\{{'launch': .*\}}),  # {sign}(?:\r?\n|\r)", re.MULTILINE)
    for match in row.finditer(text):
        form = form_of(match[1])
        if form is None or len(form.statement.body) != 1:
            raise PythonError("a row of the table of launches is no literal")
    rest = row.sub("", text)
    for line in read(rest).simple_lines() if alone else ():
        count = rest.count(sign, line.start, line.end)
        if count not in (0, line.last - line.number + 1):
            raise PythonError("an inserted line is inside of another statement", line.number)
