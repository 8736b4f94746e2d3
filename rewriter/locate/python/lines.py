"""Splits Python text into logical lines, each with its form.

The text is the bytes of a file, one character for each (`latin-1`), so that offsets are those of
the file. What is looked for is ASCII, and no byte of another character in UTF-8 is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rewriter.locate.python.forms import STRING, Form, form_of, is_block, is_plain
from rewriter.locate.python.syntax import PythonError

_BOM = "\xef\xbb\xbf"
# Indentation, text and end of one line of a file.
_LINE = re.compile(r"[ \t\f]*([^\r\n]*)(?:\r\n?|\n|\Z)")
_NEWLINE = re.compile(r"\r\n?|\n")
# What decides where a logical line ends; a quotation mark that begins no string comes last.
_TOKEN = re.compile(
    rf"{STRING}|#[^\r\n]*|\\(?:\r\n?|\n)|[()\[\]{{}}]|\r\n?|\n|'''|\"\"\"|['\"]", re.S
)


class Line(NamedTuple):
    """A logical line: the offsets of its start, of its text behind the indentation, and behind its
    line end; the numbers of its first and last line; whether it belongs to a compound statement.

    `form` is `None` if the line was not read yet. `packed` are the values in it, with zero bytes
    between them, which takes a third of the memory of a list.
    """

    start: int
    body: int
    end: int
    number: int
    last: int
    is_block: bool
    form: Form | None
    packed: str = ""

    @property
    def is_clause(self) -> bool:
        """Whether it continues a compound statement, as `else` does."""
        text = self.form.text if self.form is not None and self.is_block else ""
        return text.startswith(("else", "elif", "except", "finally", "case"))


def lines(text: str, *, reads: bool = True) -> Iterator[Line]:
    """Yield the logical lines, without empty ones and those that are only a comment. Without
    `reads`, most have no form yet.

    Raises `PythonError` if a string or a bracket does not end.
    """
    start, number = len(_BOM) if text.startswith(_BOM) else 0, 1
    while start < len(text):
        match = _LINE.match(text, start)
        assert match is not None
        written, body, end, last = match[1], match.start(1), match.end(), number
        if written and written[0] != "#":
            block = is_block(written)
            if not reads and not block and is_plain(written):
                yield Line(start, body, end, number, last, block, None)
            else:
                read = form_of(written)
                if read is None:
                    stop, end = _end(text, body)
                    read = form_of(text[body:stop], whole=True)
                    last += line_ends(text[body:stop])
                    block = is_block(text[body:stop])
                assert read is not None
                yield Line(start, body, end, number, last, block, read[0], "\0".join(read[1]))
        start, number = end, last + 1


def line_ends(text: str) -> int:
    """The number of line ends in a text."""
    return text.count("\n") if "\r" not in text else len(_NEWLINE.findall(text))


def _end(text: str, position: int) -> tuple[int, int]:
    """Where a logical line ends that begins at an offset: before and behind its line end."""
    opened: list[int] = []
    token = ""
    for match in _TOKEN.finditer(text, position):
        token = match[0]
        if token in ("(", "[", "{"):
            opened.append(match.start())
        elif token in (")", "]", "}"):
            if opened:
                opened.pop()
        elif token in ("'''", '"""', "'", '"'):
            kind = "string in triple quotes" if len(token) == 3 else "string"
            raise _error(text, match.start(), f"a {kind} does not end")
        elif token[0] in "\r\n" and not opened:
            return match.start(), match.end()
    if token[:1] == "\\":
        raise _error(text, len(text.rstrip()) - 1, "unexpected end of file")
    if opened:
        raise _error(text, opened[-1], f"'{text[opened[-1]]}' was never closed")
    return len(text), len(text)


def _error(text: str, offset: int, message: str) -> PythonError:
    begin = 1 + max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset))
    return PythonError(message, line_ends(text[:offset]) + 1, offset - begin)
