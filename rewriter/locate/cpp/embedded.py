"""Reads the C++ in a string of a Python file, as `cpp_wrapper=True` generates it.

Edits are made to the file, so offsets into the C++ are translated to offsets into the file. Since
torch 2.7 the string is raw, and the two differ by a constant. Before, it was not raw: a backslash
in the file begins an escape, and inserted text has to be escaped.
"""

from __future__ import annotations

import ast
import bisect
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.cpp.recognition import EMBEDDED, SUFFIXES

if TYPE_CHECKING:
    from rewriter.locate.python.module import Module

_NAME = "cpp_wrapper_src"
_OPENING = re.compile(rb"(?P<prefix>[rRuU]?)(?P<quote>'''|\"\"\")")
_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
# A backslash and a newline join two lines; every other escape means one character.
_ESCAPE = re.compile(
    rb"\\(?:\r\n|[\n\r]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}\\]{1,100}\}"
    rb"|[0-7]{1,3}|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Embedded:
    """C++ as its compiler sees it, and its place in the file.

    `start` is the offset of the string's first byte in the file, 0 for a C++ file. `raw` is
    whether backslashes have no special meaning, `quote` the delimiter that ends the string. `steps`
    are pairs of offsets, into `data` and into the file; from each pair on both advance in parallel.
    `module` is the Python around the string, `statement` the offset in the file of the line where
    the statement with the string begins.
    """

    data: bytes
    start: int
    raw: bool
    quote: str
    steps: tuple[tuple[int, int], ...]
    module: Module | None = None
    statement: int = 0

    @cached_property
    def _from(self) -> list[int]:
        return [inner for inner, _ in self.steps]

    def position(self, offset: int) -> int:
        """The offset in the file of an offset in `data`."""
        inner, outer = self.steps[bisect.bisect_right(self._from, offset) - 1]
        return outer + offset - inner

    def encode(self, text: str) -> str:
        """`text` as it has to be written into the file."""
        if self.raw:
            if self.quote in text:
                raise ValueError(f"{self.quote} would end the string: {text!r}")
            return text
        return text.replace("\\", "\\\\").replace(self.quote, "\\" + "\\".join(self.quote))


def extract(source: Source) -> Embedded:
    """Extract the C++ of a file: one of its strings, or all of it.

    Raises `RewriterError` if the file names such a string but does not define it.
    """
    if source.name.endswith(SUFFIXES) or not EMBEDDED.search(source.data):
        return Embedded(source.data, 0, True, "\0", ((0, 0),))
    from rewriter.locate.python.module import parse

    module = parse(source)
    bound = module.strings(_NAME)
    if len(bound) != 1:
        line = bound[1][0] if bound else _line_of_name(source)
        raise _refused(source, line, "is bound more than once" if bound else "is bound to nothing")
    ((line, literals),) = bound
    if not literals:
        raise _refused(source, line, "is no string")
    offset, end = literals[0]
    match = _OPENING.match(source.data, offset)
    if not match or len(literals) > 1:
        raise _refused(source, line, "is no string in triple quotes, or more than one")
    start, quote = match.end(), match["quote"]
    raw = b"r" in match["prefix"].lower()
    # Python treats a carriage return as the end of a line, and the compiler gets a line feed.
    text = _CARRIAGE_RETURN.sub(b"\n", source.data[start : end - 3])
    statement = source.line_start(line)
    if raw or b"\\" not in text:
        return Embedded(text, start, raw, quote.decode(), ((0, start),), module, statement)
    return _unescaped(text, start, quote.decode(), module, statement)


def _line_of_name(source: Source) -> int:
    match = EMBEDDED.search(source.data)
    return source.line_of(match.end()) if match else 1


def _refused(source: Source, line: int, problem: str) -> RewriterError:
    return RewriterError(
        "not-a-wrapper",
        f"{source.name}:{line}: {_NAME} {problem}",
        hint="Expected the output_code.py of a model compiled with cpp_wrapper=True: it binds one "
        "string in triple quotes to that name.",
    )


@cache
def _meant(escape: bytes) -> bytes:
    """The meaning of an escape; the escape itself if Python does not know it, such as `\\d`."""
    try:
        text: str = ast.literal_eval(f"'''{escape.decode()}'''")
        return text.encode()
    except (SyntaxError, ValueError):  # the file does not parse, which the caller reports
        return escape


def _unescaped(text: bytes, start: int, quote: str, module: Module, statement: int) -> Embedded:
    pieces = []
    steps = [(0, start)]
    length = position = 0
    for escape in _ESCAPE.finditer(text):
        meant = _meant(escape.group())
        pieces += [text[position : escape.start()], meant]
        length += escape.start() - position + len(meant)
        position = escape.end()
        steps.append((length, start + position))
    pieces.append(text[position:])
    return Embedded(b"".join(pieces), start, False, quote, tuple(steps), module, statement)
