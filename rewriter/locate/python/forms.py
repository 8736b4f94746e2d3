"""The form of a line of Python: its text with placeholders for names, numbers and strings.

A wrapper has thousands of statements in a few dozen forms, so libcst reads each form once, and
what it finds is filled with the values of each line. In a form, every name that ends in a digit is
a placeholder, as are all names that Inductor numbers: kernels, buffers and sizes. So are whole
numbers, strings and comments. A placeholder holds the index of its value: `p0.run(p1, 2, '3')`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property

import libcst as cst

from rewriter.locate.python import syntax

_NAME = r"(?<!\w)[A-Za-z_]\w*\d(?!\w)"
_NUMBER = r"(?<![\w.])(?:0|[1-9]\d{0,17})(?![\w.])"
# A prefix such as `r` stays in the form. A string in single quotes does not begin one of the other
# kind, which may end on a later line.
_STRINGS = tuple(
    rf"{quote * 3}[^\\{quote}]*(?:(?:\\.|{quote}(?!{quote * 2}))[^\\{quote}]*)*{quote * 3}"
    rf"|{quote}(?!{quote * 2})[^\\\r\n{quote}]*(?:\\(?:\r\n|.)[^\\\r\n{quote}]*)*{quote}"
    for quote in "'\""
)
_VALUE = re.compile(f"({'|'.join(_STRINGS)}|#[^\r\n]*|{_NAME}|{_NUMBER})", re.DOTALL | re.ASCII)
# In the text of a form.
_PLACEHOLDER = re.compile(
    r"(?<!\w)p(\d+)(?!\w)|(?<![\w.])(0|[1-9]\d{0,17})(?![\w.])|'(\d+)'|#(\d+)", re.ASCII
)
# The kind of a value by its first character.
_KINDS = {**dict.fromkeys(map(ord, "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), "n")}
_KINDS |= {**dict.fromkeys(map(ord, "0123456789"), "0"), ord('"'): "'"}
_WRITTEN = {"n": "p{}", "0": "{}", "'": "'{}'", "#": "#{}"}
_PREFIX = re.compile(r"(?:(?<!\w)[rRbBuU]{1,2})?\Z")
_SPACE = re.compile(r"(?:\\(?=[\r\n])|[ \t\f\r\n])+")
_LINE_END = re.compile(r"\r\n?")
_FORMATTED = re.compile(r"[fFtT][rR]?\Z|(?<!\w)[rR][fFtT]\Z")
_BLOCKS = frozenset(
    {"if", "elif", "else", "for", "while", "with", "try", "except", "finally", "def", "class"}
    | {"async", "@"}
)
_SOFT = re.compile(r"(?:match|case)\s+(?![=.,:;!<>|&^%*/+)\]-]|(?:in|is|and|or|not|if|else)\b)")
_FIRST_WORD = re.compile(r"\w+|@", re.ASCII)
_MOST = 10_000  # forms that are kept
_known: dict[str, Form] = {}


class Form:
    """What libcst reads of all lines with one form. `is_literal`: the text has no placeholders."""

    def __init__(self, text: str, *, is_literal: bool) -> None:
        self.text = text
        self.is_literal = is_literal

    @cached_property
    def is_block(self) -> bool:
        """Whether it is a line of a compound statement, or a decorator."""
        word = _FIRST_WORD.match(self.text)
        return word is not None and (word[0] in _BLOCKS or bool(_SOFT.match(self.text)))

    @cached_property
    def statement(self) -> cst.SimpleStatementLine:
        """The simple statements of the line. Raises `syntax.PythonError`."""
        return syntax.statement(self.text)

    def values(self, line: str) -> list[str] | None:
        """The values of a line of this form, by the indices of its placeholders."""
        return None if self.is_literal else _VALUE.split(line)[1::2]


def form_of(line: str, *, whole: bool = False) -> Form | None:
    """The form of a line, whose bytes are the characters of `line`.

    `None` if the statement goes on in the next line; a `whole` logical line does not.
    """
    parts = _VALUE.split(line)
    kinds = "".join([value[0] for value in parts[1::2]]).translate(_KINDS)
    key = "\0".join([*parts[::2], kinds])
    form = _known.get(key)
    if form is None:
        between = parts[::2]
        if not whole and _goes_on("".join(between)):
            return None
        if len(_known) >= _MOST:
            _known.clear()
        form = _known[key] = _new(between, kinds)
    # What is not ASCII, or a string that Python evaluates, is read as it stands.
    return form if form is not _AS_IT_STANDS and line.isascii() else literal(line)


def literal(line: str) -> Form:
    """A form without placeholders."""
    return Form(line.encode("latin-1").decode("utf-8"), is_literal=True)


_AS_IT_STANDS = Form("", is_literal=True)


def _new(between: Sequence[str], kinds: str) -> Form:
    if any(
        kind == "'" and _FORMATTED.search(text) for text, kind in zip(between, kinds, strict=False)
    ):
        return _AS_IT_STANDS
    values = (_WRITTEN[kind].format(index) for index, kind in enumerate(kinds))
    pieces = [piece for pair in zip(between, values, strict=False) for piece in pair]
    return Form("".join([*pieces, between[-1]]), is_literal=False)


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
            if match.start() > position:
                pieces.append(text[position : match.start()])
            pieces.append(int(match[match.lastindex or 0]))
            position = match.end()
        if position < len(text) or not pieces:
            pieces.append(text[position:])
        self._pieces = tuple(pieces)

    def fill(self, values: Sequence[str] | None) -> str:
        """The text in a line with these values; `None`: the form has no placeholders."""
        if values is None:
            return self.text
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
    literal = _LINE_END.sub("\n", literal)
    for quote in ("'''", '"""', "'", '"'):
        prefix, found, rest = literal.partition(quote)
        is_plain = prefix in ("r", "R") or not (prefix or "\\" in rest)
        if found and is_plain and rest.find(quote) == len(rest) - len(quote):
            return rest.removesuffix(quote)  # the source of a kernel, which may be long
    value: str | bytes = ast.literal_eval(literal)
    return value
