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

from rewriter.core.errors import RewriterError
from rewriter.core.python_pieces import Module
from rewriter.core.source import Source
from rewriter.locate.cpp.recognition import EMBEDDED, SUFFIXES
from rewriter.locate.python import outline

_NAME = "cpp_wrapper_src"
_BACKSLASH = ord("\\")
_STRING = re.compile(EMBEDDED.pattern + rb"[ \t]*\(?\s*[rRuU]?(?P<quote>'''|\"\"\")", re.MULTILINE)
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
    literal = _literal(source)
    offset = source.position(literal.lineno, literal.col_offset)
    end = source.position(literal.end_lineno or literal.lineno, literal.end_col_offset or 0)
    match = _OPENING.match(source.data, offset)
    closing = _end(source.data, match.end(), match["quote"]) if match else -1
    if not match or closing != end - 3:
        raise _refused(source, literal.lineno, "is no string in triple quotes, or more than one")
    start, quote = match.end(), match["quote"]
    raw = b"r" in match["prefix"].lower()
    # Python treats a carriage return as the end of a line, and the compiler gets a line feed.
    text = _CARRIAGE_RETURN.sub(b"\n", source.data[start : end - 3])
    if raw or b"\\" not in text:
        return Embedded(text, start, raw, quote.decode(), ((0, start),))
    return _unescaped(text, start, quote.decode())


def _literal(source: Source) -> ast.Constant:
    """What the module binds to `cpp_wrapper_src`. Needs the tree: other strings may look alike."""
    bound = [
        statement
        for statement in _parse(source).body
        if isinstance(statement, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == _NAME for one in statement.targets)
    ]
    if len(bound) != 1:
        line = bound[1].lineno if bound else _line_of_name(source)
        raise _refused(source, line, "is bound more than once" if bound else "is bound to nothing")
    value = bound[0].value
    if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        raise _refused(source, bound[0].lineno, "is no string")
    return value


def _parse(source: Source) -> Module:
    try:
        return outline.parse(source)
    except RewriterError as error:
        opening = _STRING.search(source.data)
        if opening is None or _end(source.data, opening.end(), opening["quote"]) >= 0:
            raise
        line = source.line_of(opening.start())
        raise RewriterError(
            "syntax-error",
            f"{source.name}:{line}: the string of {_NAME} does not end; the file may be truncated",
            hint="Expected the output_code.py of a model compiled with cpp_wrapper=True.",
        ) from error


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


def _end(data: bytes, start: int, quote: bytes) -> int:
    """The offset where the string that starts at `start` ends; -1 if it does not end."""
    found = data.find(quote, start)
    while found >= 0:
        first = found  # the first of the backslashes before it, which escape each other in pairs
        while first > start and data[first - 1] == _BACKSLASH:
            first -= 1
        if (found - first) % 2 == 0:
            return found
        found = data.find(quote, found + 1)
    return -1


@cache
def _meant(escape: bytes) -> bytes:
    """The meaning of an escape; the escape itself if Python does not know it, such as `\\d`."""
    try:
        text: str = ast.literal_eval(f"'''{escape.decode()}'''")
        return text.encode()
    except (SyntaxError, ValueError):  # the file does not parse, which the caller reports
        return escape


def _unescaped(text: bytes, start: int, quote: str) -> Embedded:
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
    return Embedded(b"".join(pieces), start, False, quote, tuple(steps))
