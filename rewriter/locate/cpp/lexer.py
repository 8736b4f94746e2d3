"""Splits C++ into tokens: tells code from comments and literals, and finds the entries in it.

A wrapper never parses without errors, since it is full of macros. So tree-sitter gets only the
entries, and text elsewhere, with or without probes, cannot change how they parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rewriter.core import limits

# Comments and literals. One that does not end extends to the end of the text or line: otherwise the
# rest would be searched again for each one that begins in it. A backslash continues a line.
_HIDDEN = rb"""
    //(?:[^\\\r\n]+|\\(?:\r\n|[\s\S])|\r(?!\n))*
    |/\*(?:[^*]+|\*(?!/))*(?:\*/)?
    |(?<!\w)(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\((?:[\s\S]*?\)(?P=delimiter)"|[\s\S]*)
    |"(?:[^"\\\r\n]+|\\(?:\r\n|[\s\S]))*"?
    |'(?:[^'\\\r\n]+|\\(?:\r\n|[\s\S]))*'?
"""
# First come tokens that may hide signs, then parentheses without relevant content, as in most
# calls. The set of bytes in front skips all others at once. A directive ends with its line; a
# comment in it is a token itself. A quote inside a number (1'000) begins no literal.
_TOKEN = re.compile(
    rb"""(?:\A|(?=[\n/"'(){};RuUL_ri\d]))(?:"""
    + _HIDDEN
    + rb"""
    |(?:\A|\n)[ \t]*\#(?:[^\\\r\n/]+|/(?![/*])|\\(?:\r\n|[\s\S])|\r(?!\n))*
    |(?<![\w.])\d[\w.]*'[\w.']*
    |\([^(){};"'/\#]{0,400}\)
    |(?P<sign>[(){};])
    |(?P<name>\b(?:
        run_impl(?:_minimal_arrayref_interface(?:_v2_raw)?)?|_const_run_impl|inductor_entry_impl
    )\b))""",
    re.VERBOSE,
)
_COMMENT_OR_LITERAL = re.compile(_HIDDEN, re.VERBOSE)
_NO_ANGLES = bytes(set(range(256)) - set(b"<>;{}"))
_ENDS = re.compile(rb"[>;{}]+")
_OPEN, _CLOSE, _BEGIN, _END, _NAME = b"(){}n"


@dataclass(frozen=True)
class EntryDefinition:
    """The definition of an entry: from the end of the preceding text to its closing brace.

    `name` is the offset of the function's name. `end` is -1 if the closing brace is missing.
    """

    start: int
    name: int
    end: int


@lru_cache(maxsize=2)  # a text that is verified after instrumenting is located next
def definitions(data: bytes) -> tuple[EntryDefinition, ...]:
    """The definitions of entries in a text, in order."""
    entries: list[EntryDefinition] = []
    braces = parentheses = 0
    start = 0  # of the current declaration
    name: tuple[int, int] | None = None  # of an entry, and how many braces are open
    inside: tuple[int, int, int] | None = None
    for offset, sign in _tokens(data):
        if sign == _OPEN:
            parentheses += 1
        elif sign == _CLOSE:
            parentheses = max(0, parentheses - 1)
        elif sign == _BEGIN:
            if inside is None:
                if name and not parentheses and name[1] == braces:
                    inside = start, name[0], braces
                start, parentheses = offset + 1, 0
            name = None
            braces += 1
        elif sign == _END:
            braces = max(0, braces - 1)
            if inside and inside[2] == braces:
                entries.append(EntryDefinition(inside[0], inside[1], offset + 1))
                inside, parentheses = None, 0
            if inside is None:
                start, name = offset + 1, None
        elif inside is not None or parentheses:
            # A name inside parentheses or inside another function's body is a call.
            pass
        elif sign == _NAME:
            name = offset, braces
        else:
            start, name = offset + 1, None
    if inside:
        entries.append(EntryDefinition(inside[0], inside[1], -1))
    return tuple(entries)


def _tokens(data: bytes) -> Iterator[tuple[int, int]]:
    """The signs and the names of entries in a text, each with its offset."""
    for match in _TOKEN.finditer(data):
        if match.lastgroup == "sign":
            yield match.start(), data[match.start()]
        elif match.lastgroup == "name":
            yield match.start(), _NAME


def code(data: bytes) -> bytes:
    """C++ with an empty string in place of each comment and literal.

    They contain kernels, commands and texts of the model, in which nothing should be found.
    """
    return _COMMENT_OR_LITERAL.sub(b'""', data)


def require_parsable(name: str, data: bytes) -> None:
    """Raise if the parser would take quadratic time: see `limits.ANGLES`."""
    if _open_angles(data) <= limits.ANGLES:
        return
    angles = _open_angles(code(data))
    if angles > limits.ANGLES:
        raise limits.too_large(name, f"{angles:,} `<` in one statement", f"{limits.ANGLES:,}")


def _open_angles(data: bytes) -> int:
    """The largest number of successive `<` that nothing closes before the statement ends."""
    return max(map(len, _ENDS.split(data.translate(None, _NO_ANGLES))))


def members(text: str) -> Iterator[str]:
    """The parts of a list that are not empty, at its own commas."""
    depth, start = 0, 0
    for position, character in enumerate(text + ","):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            if part := text[start:position].strip():
                yield part
            start = position + 1
