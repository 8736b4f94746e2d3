"""Splits Python text into logical lines, each with its form.

The text is the bytes of a file, one character for each (`latin-1`), so that offsets are those of
the file. What the scanner looks for is ASCII, and no byte of other characters in UTF-8 is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rewriter.locate.python.forms import Form, form_of
from rewriter.locate.python.syntax import PythonError

# Indentation, text and end of one line of a file.
_LINE = re.compile(r"[ \t\f]*([^\r\n]*)(?:\r\n?|\n|\Z)")
NEWLINE = re.compile(r"\r\n?|\n")
# Begins or ends something in which brackets and line ends have another meaning.
_SPECIAL = re.compile(r"'''|\"\"\"|['\"#\\()\[\]{}]|\r\n?|\n")
# Where a string in single quotes may end; a backslash escapes what follows it.
_SINGLE_END = {q: re.compile(rf"\\(?:\r\n|.)|({q})|\r|\n", re.DOTALL) for q in "'\""}


class Line(NamedTuple):
    """A logical line: the offsets of its start, of its text behind the indentation, and behind its
    line end; the numbers of its first and last line, and its form."""

    start: int
    body: int
    end: int
    number: int
    last: int
    form: Form


def lines(text: str) -> Iterator[Line]:
    """Yield the logical lines, without those that are empty or hold a comment.

    Raises `PythonError` if a string or a bracket does not end.
    """
    position = 3 if text.startswith("\xef\xbb\xbf") else 0
    start, number, size = 0, 1, len(text)
    while position < size:
        match = _LINE.match(text, position)
        assert match is not None
        written, body, end, last = match[1], match.start(1), match.end(), number
        if written and written[0] != "#":
            form = form_of(written)
            if form is None:
                stop = _end(text, body)
                written = text[body:stop]
                form = form_of(written, whole=True)
                assert form is not None
                last += line_ends(written)
                newline = NEWLINE.match(text, stop)
                end = newline.end() if newline else stop
            yield Line(start, body, end, number, last, form)
        start = position = end
        number = last + 1


def line_ends(text: str) -> int:
    """The number of line ends in a text."""
    return text.count("\n") if "\r" not in text else len(NEWLINE.findall(text))


def _end(text: str, position: int) -> int:
    """The offset where a logical line ends, before its line end."""
    opened: list[int] = []
    while (match := _SPECIAL.search(text, position)) is not None:
        one, position = match[0], match.end()
        if one in "([{":
            opened.append(match.start())
        elif one in ")]}":
            if opened:
                opened.pop()
        elif one[0] in "\r\n":
            if not opened:
                return match.start()
        elif one == "#":
            newline = NEWLINE.search(text, position)
            position = newline.start() if newline else len(text)
        elif one == "\\":
            newline = NEWLINE.match(text, position)
            if newline is None or newline.end() == len(text):
                raise _error(text, match.start(), "unexpected character after a backslash")
            position = newline.end()
        else:
            position = _string_end(text, match)
    if opened:
        raise _error(text, opened[-1], f"'{text[opened[-1]]}' was never closed")
    return len(text)


def _string_end(text: str, opening: re.Match[str]) -> int:
    quote, position = opening[0], opening.end()
    if len(quote) == 3:
        while (position := text.find(quote, position)) >= 0:
            before = position - 1
            while text[before] == "\\":
                before -= 1
            if (position - before) % 2:  # backslashes escape each other
                return position + 3
            position += 1
        raise _error(text, opening.start(), "unterminated triple-quoted string literal")
    for match in _SINGLE_END[quote].finditer(text, position):
        if match[1]:
            return match.end()
        if match[0] in ("\r", "\n"):
            break
    raise _error(text, opening.start(), "unterminated string literal")


def _error(text: str, offset: int, message: str) -> PythonError:
    newlines = list(NEWLINE.finditer(text, 0, offset))
    begin = newlines[-1].end() if newlines else 0
    return PythonError(message, len(newlines) + 1, offset - begin)
