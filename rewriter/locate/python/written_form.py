"""The form of a text: the text without its variables and numbers, so that each form is read once.

A wrapper has thousands of launches in a few forms, which differ in buffers and numbers. Parsing one
takes a millisecond, so each form is parsed once, with placeholders for variables and numbers, and
the results are filled with the values of each launch. A placeholder is of the same kind as what it
replaces, so that it does not change the parse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A variable ends in a digit, as all names that Inductor numbers do. Names before a dot, a bracket
# or an equals sign are kept, since they decide how the text is read. Strings are kept too, and
# digits that belong to something else.
_REPLACED = re.compile(
    r"'[^'\\]*'|\"[^\"\\]*\""
    r"|(?<![\w.])(?P<name>[A-Za-z_]\w*\d)(?!\w|\s*[.(\[=])"
    r"|(?<![\w.])(?P<number>0|[1-9]\d{0,17})(?![\w.])"
)
_UNUSUAL = re.compile(r"\\|'''|\"\"\"|\n|(?<!\d)7077\d{6}7707(?!\d)")
# The placeholders; ASCII text cannot contain one of the first kind.
_PLACEHOLDER = re.compile(r"ø(\d+)ø|(?<!\d)7077(\d{6})7707(?!\d)")


@dataclass(frozen=True)
class WrittenForm:
    """A text with placeholders, and what they stand for, in order."""

    text: str
    values: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """A key that all texts of this form share, and no others."""
        return self.text, len(self.values)

    def template(self, text: str) -> Template:
        """A part of the text as a template; without placeholders, text may look like one."""
        return Template(text, is_literal=not self.values)


def form_of(text: str) -> WrittenForm:
    """The form of a text; a text in an unusual notation gets a form of its own."""
    if not text.isascii() or _UNUSUAL.search(text):
        return WrittenForm(text)
    values: list[str] = []
    pieces: list[str] = []
    position = 0
    for match in _REPLACED.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        pieces.append(text[position : match.start()])
        pieces.append(f"ø{len(values)}ø" if kind == "name" else f"7077{len(values):06}7707")
        values.append(match[0])
        position = match.end()
    pieces.append(text[position:])
    return WrittenForm("".join(pieces), tuple(values))


class Template:
    """A text of a form, such as an argument, to be filled with the values of other texts."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str, *, is_literal: bool) -> None:
        pieces: list[str | int] = []
        position = 0
        for match in () if is_literal else _PLACEHOLDER.finditer(text):
            if match.start() > position:
                pieces.append(text[position : match.start()])
            pieces.append(int(match[match.lastindex or 0]))
            position = match.end()
        if position < len(text) or not pieces:
            pieces.append(text[position:])
        self._pieces = tuple(pieces)

    def fill(self, values: Sequence[str]) -> str:
        """The text with these values."""
        pieces = self._pieces
        if len(pieces) == 1:
            only = pieces[0]
            return only if isinstance(only, str) else values[only]
        return "".join([x if isinstance(x, str) else values[x] for x in pieces])
