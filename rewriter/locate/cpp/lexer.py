"""Finds the definitions of the entries in C++, by its tokens alone.

A wrapper never parses without errors: it is full of macros. So tree-sitter is given the entries
only, and what stands elsewhere, before or after probes went in, cannot change how they parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# First what hides braces (comments, literals), and parentheses around nothing that counts, as those
# of most calls. Then what counts. In one pattern, so that each token is read once, from its start.
# A string that does not end is over at the end of its line.
_TOKEN = re.compile(
    rb"(?P<skipped>"
    rb"//(?:[^\\\r\n]|\\(?:\r\n|[\s\S])|\r(?!\n))*"  # a backslash goes on with it on the next line
    rb"|/\*(?:[^*]|\*(?!/))*(?:\*/)?"
    rb"|(?<![A-Za-z0-9_])(?:u8|[uUL])?R\"(?P<delimiter>[^()\\\s\"]{0,16})\("
    rb"|\"(?:[^\"\\\r\n]|\\(?:\r\n|[\s\S]))*\"?"
    rb"|(?<![A-Za-z0-9_.])[0-9][\w.]*'[\w.']*"  # 1'000
    rb"|'(?:[^'\\\r\n]|\\(?:\r\n|[\s\S]))*'?"
    rb"|^[ \t]*\#(?:[^\\\r\n/]|/(?![/*])|\\(?:\r\n|[\s\S])|\r(?!\n))*"
    rb"|\([^(){};\"'/#]{0,400}\)"
    rb")|(?P<name>\b(?:run_impl|_const_run_impl|run_impl_minimal_arrayref_interface(?:_v2_raw)?"
    rb"|inductor_entry_impl)\b)|(?P<sign>[(){};])",
    re.MULTILINE,
)


@dataclass(frozen=True)
class EntryDefinition:
    """A definition of an entry: from the end of what is before it to its closing brace.

    `name` is the offset of the function's name. `end` is -1 where there is no closing brace.
    """

    start: int
    name: int
    end: int


def definitions(data: bytes) -> list[EntryDefinition]:
    """The definitions of entries in a text, in order."""
    entries: list[EntryDefinition] = []
    braces = parentheses = 0
    start = 0  # of the declaration that the walk is in
    name: tuple[int, int] | None = None  # an entry's, and how many braces are open
    inside: tuple[int, int, int] | None = None
    for match in _tokens(data):
        sign = match["sign"]
        if sign is None:
            # A name in parentheses is a call's, one in a body of another function is, too.
            if match["name"] and inside is None and not parentheses:
                name = match.start(), braces
        elif sign == b"(":
            parentheses += 1
        elif sign == b")":
            parentheses = max(0, parentheses - 1)
        elif sign == b"{":
            if inside is None and name and not parentheses and name[1] == braces:
                inside = start, name[0], braces
            if inside is None:
                start = match.end()
            name, parentheses = None, 0 if inside is None else parentheses
            braces += 1
        elif sign == b"}":
            braces = max(0, braces - 1)
            if inside and inside[2] == braces:
                entries.append(EntryDefinition(inside[0], inside[1], match.end()))
                inside, parentheses = None, 0
            if inside is None:
                start, name = match.end(), None
        elif inside is None and not parentheses:
            start, name = match.end(), None
    if inside:
        entries.append(EntryDefinition(inside[0], inside[1], -1))
    return entries


def _tokens(data: bytes) -> Iterator[re.Match[bytes]]:
    position = 0
    while position >= 0:
        tokens, position = _TOKEN.finditer(data, position), -1
        for match in tokens:
            if match.lastgroup != "skipped":
                yield match
            elif match["delimiter"] is not None:
                end = data.find(b")" + match["delimiter"] + b'"', match.end())
                position = end  # -1 where it does not end: then nothing follows
                break
