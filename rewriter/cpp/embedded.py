"""The C++ that stands in a string of a Python file: what `cpp_wrapper=True` leaves.

Edits are made to the file, so offsets into the C++ are translated to offsets into the file. Since
torch 2.7 the string is raw and they differ by a constant. Before, it was not: a backslash in the
file is an escape, and what goes in has to be escaped.
"""

from __future__ import annotations

import ast
import bisect
import re
from dataclasses import dataclass
from functools import cached_property

from rewriter.errors import RewriterError
from rewriter.source import Source

_STRING = re.compile(
    rb"(?:^|(?<=\r))cpp_wrapper_src[ \t]*=[ \t]*\(?\s*"
    rb"(?P<prefix>[rRbBuU]{0,2})(?P<quote>'''|\"\"\")",
    re.MULTILINE,
)
_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
# A backslash and a newline join two lines; the other escapes stand for one character.
_ESCAPE = re.compile(
    rb"\\(?:\r\n|[\n\r]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|[0-7]{1,3}|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Embedded:
    """C++ as its compiler sees it, and where it stands in the file.

    `start` is the offset of the string's first byte in the file, 0 for a file of C++, `raw` whether
    backslashes stand for themselves, `quote` what ends it. `steps` are pairs of offsets, into
    `data` and into the file, from which on the two run in parallel.
    """

    data: bytes
    start: int
    raw: bool
    quote: str
    steps: tuple[tuple[int, int], ...]

    @cached_property
    def _from(self) -> list[int]:
        return [inner for inner, _ in self.steps]

    def position(self, offset: int) -> int:
        """The offset in the file of an offset in `data`."""
        inner, outer = self.steps[bisect.bisect_right(self._from, offset) - 1]
        return outer + offset - inner

    def encode(self, text: str) -> str:
        """`text` as it has to be written in the file."""
        if self.quote in text:
            raise ValueError(f"{self.quote} would end the string: {text!r}")
        return text if self.raw else text.replace("\\", "\\\\")


def of(source: Source) -> Embedded:
    """The C++ of a file: a string in it, or all of it.

    Raises `RewriterError` where the string does not end.
    """
    match = _STRING.search(source.data)
    if match is None:
        return Embedded(source.data, 0, True, "\0", ((0, 0),))
    start, quote = match.end(), match["quote"]
    raw = b"r" in match["prefix"].lower()
    end = _end(source.data, start, quote)
    if end < 0:
        raise RewriterError(
            "syntax-error",
            f"{source.name}:{source.line_of(match.start())}: the string of cpp_wrapper_src does "
            "not end; the file may be truncated",
            hint="Expected the output_code.py of a model compiled with cpp_wrapper=True.",
        )
    # Python ends lines at a carriage return, too, and hands a line feed to the compiler.
    text = _CARRIAGE_RETURN.sub(b"\n", source.data[start:end])
    if raw or b"\\" not in text:
        return Embedded(text, start, raw, quote.decode(), ((0, start),))
    return _unescaped(text, start, quote.decode())


def _end(data: bytes, start: int, quote: bytes) -> int:
    """Where the string ends that starts at `start`; -1 if nowhere. An escaped quote is none."""
    position = start
    while (found := data.find(quote, position)) >= 0:
        backslashes = found - len(data[:found].rstrip(b"\\"))
        if backslashes % 2 == 0:
            return found
        position = found + 1
    return -1


def _unescaped(text: bytes, start: int, quote: str) -> Embedded:
    pieces = []
    steps = [(0, start)]
    length = position = 0
    for escape in _ESCAPE.finditer(text):
        meant = ast.literal_eval(f"'''{escape.group().decode()}'''").encode()
        pieces += [text[position : escape.start()], meant]
        length += escape.start() - position + len(meant)
        position = escape.end()
        steps.append((length, start + position))
    pieces.append(text[position:])
    return Embedded(b"".join(pieces), start, False, quote, tuple(steps))
