"""What a text is but for its variables and numbers: what is read of one is known of all alike.

The thousands of launches of a wrapper are written in a few ways: other buffers, other numbers. A
parse of one takes a millisecond, so each way is parsed once, with placeholders for variables and
numbers, and what was read is filled in again. Placeholders are of the kind that they stand for, so
that the parse is that of the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A variable ends in a digit, as all that Inductor numbers. What a dot, a call, a subscript or a
# keyword makes more than a variable stays: what it is called decides how it is read. So does all
# in quotes, and what are digits of something else.
_REPLACED = re.compile(
    r"'[^'\\]*'|\"[^\"\\]*\""
    r"|(?<![\w.])(?P<name>[A-Za-z_]\w*\d)(?!\w|\s*[.(\[=])"
    r"|(?<![\w.])(?P<number>0|[1-9]\d{0,17})(?![\w.])"
)
_UNUSUAL = re.compile(r"\\|'''|\"\"\"|\n|(?<!\d)7077\d{6}7707(?!\d)")
# The placeholders; a text in ASCII has none of the first sort.
_PLACEHOLDER = re.compile(r"ø(\d+)ø|(?<!\d)7077(\d{6})7707(?!\d)")


@dataclass(frozen=True)
class WrittenForm:
    """A text with placeholders, and what they stand for, in order."""

    text: str
    values: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What all texts of this form have, and no other."""
        return self.text, len(self.values)

    def template(self, text: str) -> Template:
        """A part of the text as a template; one without placeholders may look as if it had some."""
        return Template(text, is_literal=not self.values)


def form_of(text: str) -> WrittenForm:
    """The form of a text; one that is written in an unusual way is its own."""
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
    """A text of a form, such as one of its arguments, to be filled with the values of another."""

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
