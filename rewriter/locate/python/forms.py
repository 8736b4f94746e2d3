"""The form of a line of Python: its text with placeholders for names, numbers and strings.

A wrapper has thousands of statements in a few dozen forms, so libcst reads each form once, and
what it finds is filled with the values of each line. In a form, every name that ends in a digit is
a placeholder: that is how Inductor names kernels, buffers and sizes. So are whole numbers, strings
and comments. A placeholder holds the index of its value: `p0.run(p1, 2, '3')`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property
from string import ascii_letters, digits

import libcst as cst

from rewriter.locate.python import syntax

# Keywords (`out0=buf1`) are kept; they must not look like placeholders.
_NAME = r"(?<!\w)(?:p\d+(?!\w)|[A-Za-z_]\w*\d(?!\w|=(?!=)))"
_NUMBER = r"(?<![\w.])(?:0|[1-9]\d{0,17})(?![\w.])"
# A prefix such as `r` stays in the form. A quotation mark does not begin a string in single quotes
# if it may begin one that ends on a later line.
STRING = "|".join(
    rf"{quote * 3}[^\\{quote}]*(?:(?:\\.|{quote}(?!{quote * 2}))[^\\{quote}]*)*{quote * 3}"
    rf"|{quote}(?!{quote * 2})[^\\\r\n{quote}]*(?:\\(?:\r\n|.)[^\\\r\n{quote}]*)*{quote}"
    for quote in "'\""
)
_VALUE = re.compile(f"({STRING}|#[^\r\n]*|{_NAME}|{_NUMBER})", re.DOTALL | re.ASCII)
# In the text of a form.
_PLACEHOLDER = re.compile(
    r"(?<!\w)p(\d+)(?!\w)|(?<![\w.])(0|[1-9]\d{0,17})(?![\w.])|'(\d+)'|#(\d+)", re.ASCII
)
# The kind of a value by its first character.
_KINDS = str.maketrans(ascii_letters + '_"' + digits, "n" * 53 + "'" + "0" * 10)
_WRITTEN = {"n": "p{}", "0": "{}", "'": "'{}'", "#": "#{}"}
_PREFIX = re.compile(r"(?:(?<!\w)[rRbBuU]{1,2})?\Z")
_SPACE = re.compile(r"(?:\\(?=[\r\n])|[ \t\f\r\n])+")
_LINE_END = re.compile(r"\r\n?")
_BLOCK = re.compile(
    r"(?:\\(?:\r\n?|\n)[ \t\f]*)*"
    r"(?:(?:if|elif|else|for|while|with|try|except|finally|def|class|async)\b|@"
    # Also names of variables.
    r"|(?:match|case)\s+(?![=.,:;!<>|&^%*/+)\]-]|(?:in|is|and|or|not|if|else)\b))"
)
_MOST = 10_000  # forms that are kept
_known: dict[str, Form] = {}


class Form:
    """What libcst reads of all lines with one form."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def statement(self) -> cst.SimpleStatementLine:
        """The simple statements of the line. Raises `syntax.PythonError`."""
        return syntax.statement(self.text)


def form_of(line: str, *, whole: bool = False) -> tuple[Form, list[str]] | None:
    """The form of a line, whose bytes are the characters of `line`, and the values in the line, by
    the indices of the form's placeholders.

    `None` if the statement goes on in the next line; a `whole` logical line does not.
    """
    parts = _VALUE.split(line)
    between, values = parts[::2], parts[1::2]
    kinds = "".join([value[0] for value in values]).translate(_KINDS)
    key = "\0".join([*between, kinds])
    form = _known.get(key)
    if form is None:
        if not whole and _goes_on("".join(between)):
            return None
        if len(_known) >= _MOST:
            _known.clear()
        parts[1::2] = [_WRITTEN[kind].format(index) for index, kind in enumerate(kinds)]
        form = _known[key] = Form(_decoded("".join(parts)))
    return form, values if line.isascii() else list(map(_decoded, values))


def _decoded(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1").decode()


def is_block(line: str) -> bool:
    """Whether a line belongs to a compound statement, or is a decorator."""
    return _BLOCK.match(line) is not None


def is_plain(line: str) -> bool:
    """Whether a line is certainly a whole statement, without strings and comments."""
    return not ("'" in line or '"' in line or "#" in line or _goes_on(line))


def _goes_on(text: str) -> bool:
    """Whether a statement goes on behind a line, of which strings and comments are left out."""
    if "'" in text or '"' in text or text.endswith("\\"):
        return True
    return any(text.count(first) != text.count(last) for first, last in ("()", "[]", "{}"))


class Template:
    """A part of a form, to be filled with the values of a line."""

    __slots__ = ("_pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        pieces: list[str | int] = []
        position = 0
        for match in _PLACEHOLDER.finditer(text):
            pieces += [text[position : match.start()], int(match[match.lastindex or 0])]
            position = match.end()
        pieces.append(text[position:])
        self._pieces = [piece for piece in pieces if piece != ""]

    def fill(self, values: Sequence[str]) -> str:
        """The text in a line with these values."""
        if len(self._pieces) == 1:
            only = self._pieces[0]
            return only if isinstance(only, str) else values[only]
        return "".join([x if isinstance(x, str) else values[x] for x in self._pieces])


def on_one_line(code: str) -> str:
    """Code on one line, without the comments in it."""
    if "\n" not in code and "\r" not in code:
        return code
    parts = _VALUE.split(code)
    for place in range(1, len(parts), 2):
        if parts[place][0] == "#":
            parts[place] = ""
        elif "\n" in parts[place] or "\r" in parts[place]:
            prefix = _PREFIX.search(parts[place - 1])[0]  # type: ignore[index]
            parts[place - 1] = parts[place - 1].removesuffix(prefix)
            parts[place] = repr(string_value(prefix + parts[place]))
    parts[::2] = [_SPACE.sub(" ", part) for part in parts[::2]]
    return "".join(parts).strip()


def string_value(literal: str) -> str | bytes:
    """The value of a string literal. Raises `ValueError` or `SyntaxError`, as for a bad escape."""
    if "\r" in literal:
        literal = _LINE_END.sub("\n", literal)
    # What needs no parser is by far the most, and may be the long source of a kernel.
    quote = literal[-3:] if literal.endswith(("'''", '"""')) else literal[-1]
    prefix, _, rest = literal.partition(quote)
    is_plain = "\\" not in literal if not prefix else prefix in ("r", "R")
    if is_plain and rest.find(quote) == len(rest) - len(quote):
        return rest.removesuffix(quote)
    value: str | bytes = ast.literal_eval(literal)
    return value
