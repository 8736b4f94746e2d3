"""Finds the definitions of the entries in C++ by its tokens alone.

A wrapper never parses without errors, since it is full of macros. So tree-sitter gets only the
entries, and text elsewhere, with or without probes, cannot change how they parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

# A directive without its first character. It ends with its line; a comment in it is a token itself.
_DIRECTIVE = rb"[ \t]*\#(?:[^\\\r\n/]+|/(?![/*])|\\(?:\r\n|[\s\S])|\r(?!\n))*"
_FIRST_LINE = re.compile(_DIRECTIVE)
# First come tokens that may hide braces (comments, literals) and parentheses without relevant
# content, as in most calls; then the relevant tokens. One pattern reads each token once from its
# start. It begins with a set of bytes, so that all others are skipped at once. A string that does
# not end is taken to end with its line.
_TOKEN = re.compile(
    rb"[\n/\"'(){};](?:"
    rb"(?<=\n)" + _DIRECTIVE + rb"|(?<=/)(?:"
    rb"/(?:[^\\\r\n]+|\\(?:\r\n|[\s\S])|\r(?!\n))*"  # a backslash continues it on the next line
    rb"|\*(?:[^*]+|\*(?!/))*(?:\*/)?)"
    rb"|(?:(?<=(?<!\w)R\")|(?<=(?<!\w)[uUL]R\")|(?<=(?<!\w)u8R\"))(?P<delimiter>[^()\\\s\"]{0,16})\("
    rb"|(?<=\")(?:[^\"\\\r\n]+|\\(?:\r\n|[\s\S]))*\"?"
    rb"|(?<=')(?:(?<=[\w.]')(?P<behind_word>)|(?:[^'\\\r\n]+|\\(?:\r\n|[\s\S]))*'?)"
    rb"|(?<=\()[^(){};\"'/#]{0,400}\)"
    rb"|(?P<sign>(?<=[(){};])))"
)
# A quote inside a number (1'000) begins no character literal; after a prefix (u8'x') it does.
_DIGITS = re.compile(rb"[\w.']*")
_CHARACTER = re.compile(rb"(?:[^'\\\r\n]+|\\(?:\r\n|[\s\S]))*'?")
# Every entry name contains this.
_IN_NAMES = b"_impl"
_NAMES = frozenset(
    (
        b"run_impl",
        b"_const_run_impl",
        b"run_impl_minimal_arrayref_interface",
        b"run_impl_minimal_arrayref_interface_v2_raw",
        b"inductor_entry_impl",
    )
)
_OPEN, _CLOSE, _BEGIN, _END, _NAME = b"(){}n"
_WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_WORD = re.compile(rb"\w+")


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
    names = _names(data)
    name = next(names)
    first = _FIRST_LINE.match(data)
    position = end = first.end() if first else 0  # the end of the previous token
    while position >= 0:
        tokens, position = _TOKEN.finditer(data, position), -1
        for match in tokens:
            start = match.start()
            while name < start:
                if name >= end:
                    yield name, _NAME
                name = next(names)
            end = match.end()
            kind = match.lastgroup
            if kind is None:
                continue
            if kind == "sign":
                yield start, data[start]
            elif kind == "delimiter":
                position = data.find(b")" + match["delimiter"] + b'"', end)
                end = position  # -1 if it does not end: then nothing follows
                break
            else:
                rest = _DIGITS if _is_in_a_number(data, start) else _CHARACTER
                position = end = rest.match(data, end).end()  # type: ignore[union-attr]
                break


def _is_in_a_number(data: bytes, quote: int) -> bool:
    start = quote
    while start and (data[start - 1] in _WORD_BYTES or data[start - 1] == ord(".")):
        start -= 1
    return data[start : start + 1].isdigit()


def _names(data: bytes) -> Iterator[int]:
    """Yield the offsets of entry names, in code or not; finally, an offset after everything."""
    found = data.find(_IN_NAMES)
    while found >= 0:
        start = found
        while start and data[start - 1] in _WORD_BYTES:
            start -= 1
        word = _WORD.match(data, start)
        assert word is not None
        if word.group() in _NAMES:
            yield start
        found = data.find(_IN_NAMES, word.end())
    yield len(data)
