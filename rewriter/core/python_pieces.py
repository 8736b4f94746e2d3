"""Parses a large Python module in pieces, so that the tree of the whole is never in memory.

A tree takes eighty times the memory of its text. The large part of a wrapper is the body of one
function, or of a `with` in it, and its statements can be read one after the other. So the middle of
a large block is left out of the module's tree, and is parsed piece by piece when its statements are
read (`Module.statements`).

Statements are found by their lines, brackets and strings, and that is checked: each piece has to
parse by itself, and so does the module without the pieces. Then the whole parses into the same
statements, because Python's tokenizer reads from left to right, and is in the same state between
any two complete statements of a block. If a check fails, the module is parsed as a whole.
"""

from __future__ import annotations

import ast
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rewriter.core import python_syntax

# Blocks of more bytes are read in pieces of at least so many.
LARGE = 1 << 18
PIECE = 1 << 18
# The most pieces: each is parsed after empty lines for all lines above it.
PIECES = 32

# Begins or ends something in which brackets and line ends have another meaning.
_SPECIAL = re.compile(r"'''|\"\"\"|['\"#\\()\[\]{}]")
_STRING_END = {
    quote: re.compile(rf"\\(?:\r\n|.)|{quote}" + ("" if len(quote) == 3 else r"|\n"), re.DOTALL)
    for quote in ("'''", '"""', "'", '"')
}
# A line that ends where it seems to, unless a bracket is open; and such a line without brackets.
_SIMPLE = re.compile(r"[^'\"#\\\n]*\n")
_PLAIN = re.compile(r"[^'\"#\\\n()\[\]{}]*\n")
_SPACES = re.compile(r" *")
_FIRST_WORD = re.compile(r"[^\W\d]\w*|@")
_CLAUSES = frozenset({"else", "elif", "except", "finally"})
# Statements with one block, the middle of which may be left out.
_DIVISIBLE = frozenset({"class", "def", "with"})
_WITH = frozenset({"with"})


# The errors that parsers raise.
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError, python_syntax.TooDeepError)


class MisreadError(Exception):
    """A piece does not parse by itself: the module has to be parsed as a whole."""


@dataclass(frozen=True)
class _Omission:
    """Statements that are not in the tree: the pieces of text, and the statements around each."""

    frame: str
    pieces: tuple[tuple[int, int, int], ...]  # the line of the first, start and end in the text


@dataclass(frozen=True)
class Module:
    """A module. `body` is its tree, without the statements that only `statements` returns."""

    body: list[ast.stmt]
    _text: str = ""
    # By the line and column of the statement after them.
    _omissions: dict[tuple[int, int], _Omission] = field(default_factory=dict)
    _unread: set[tuple[int, int]] = field(default_factory=set)
    _parser: Callable[[str], ast.Module] = python_syntax.parse

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out of the tree."""
        return not self._omissions

    def statements(self, block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield all statements of a block of the tree. Parses those that are not in the tree.

        Raises `MisreadError`.
        """
        if self.is_whole:
            yield from block
            return
        for statement in block:
            key = first_line(statement), statement.col_offset
            if key in self._omissions:
                yield from self._omitted(key)
            yield statement

    def walk(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield a node of the tree and all nodes below it. Parses and raises as `statements`."""
        stack: list[Iterator[ast.AST]] = [iter((node,))]
        while stack:
            current = next(stack[-1], None)
            if current is None:
                stack.pop()
                continue
            yield current
            stack.append(self._children(current))

    def read_the_rest(self) -> None:
        """Parse what was not read so far. Raises `MisreadError` if it does not parse."""
        for key in tuple(self._unread):
            for _ in self._omitted(key):
                pass

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                yield value
            elif isinstance(value, list):
                is_block = name == "body" and not self.is_whole
                yield from self.statements(value) if is_block else value

    def _omitted(self, key: tuple[int, int]) -> Iterator[ast.stmt]:
        omission = self._omissions[key]
        for line, start, end in omission.pieces:
            yield from self._parsed(omission.frame, line, self._text[start:end])
        self._unread.discard(key)

    def _parsed(self, frame: str, line: int, text: str) -> list[ast.stmt]:
        """The statements of a piece, with their positions in the module."""
        above = line - 1 - frame.count("\n")
        try:
            tree = self._parser("\n" * above + frame + text)
        except _FAULTS as error:
            raise MisreadError from error
        body: list[ast.stmt] = tree.body
        for _ in range(frame.count("\n")):
            if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
                raise MisreadError
            body = body[0].body
        return body


def parse(
    text: str, *, divided: bool, parser: Callable[[str], ast.Module] = python_syntax.parse
) -> Module:
    """Parse a module; with `divided`, in pieces if it is large. Raises as `parser`."""
    if divided and len(text) > LARGE:
        omissions: dict[tuple[int, int], _Omission] = {}
        try:
            rest = _Divider(text).divide(omissions)
            if omissions:
                return Module(parser(rest).body, text, omissions, set(omissions), parser)
        except (MisreadError, *_FAULTS):
            pass  # invalid or unusual: the error has to come from the tree of the whole
    return Module(parser(text).body)


def check(text: str) -> None:
    """Parse a module without keeping the tree. Raises as `ast.parse`."""
    try:
        parse(text, divided=True, parser=ast.parse).read_the_rest()
    except MisreadError:
        ast.parse(text)


def first_line(node: ast.stmt) -> int:
    """The line where a statement begins, including its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


class _Divider:
    """Finds a module's statements by their lines, and leaves out the middle of large blocks."""

    def __init__(self, text: str) -> None:
        self._text = text
        # The logical lines that are not empty: their offsets, numbers and indentations.
        self._offsets = array("q")
        self._numbers = array("q")
        self._indents = array("q")
        self._size = max(PIECE, len(text) // PIECES)

    def divide(self, omissions: dict[tuple[int, int], _Omission]) -> str:
        """Fill `omissions`; returns the text with empty lines in place of what is left out."""
        if "\f" in self._text or self._text.count("\r") != self._text.count("\r\n"):
            raise MisreadError  # a form feed is not indentation, a carriage return may end a line
        self._read_lines()
        pieces: list[str] = []
        position = 0
        every = self._block(0, len(self._offsets), "", _DIVISIBLE)
        for start, end, line, key, frame in every:
            parts = tuple(self._cut(start, end))
            first, last = self._offsets[start], self._offsets[end]
            omissions[key] = _Omission(frame, parts)
            pieces += [self._text[position:first], "\n" * (self._numbers[end] - line)]
            position = last
        return "".join([*pieces, self._text[position:]])

    def _read_lines(self) -> None:
        text = self._text
        position, number, size = 0, 1, len(text)
        while position < size:
            indented = _SPACES.match(text, position).end()  # type: ignore[union-attr]
            character = text[indented : indented + 1]
            if character in ("", "\n", "\r", "#"):
                position, number = text.find("\n", position) + 1 or size, number + 1
                continue
            if character == "\t":
                raise MisreadError
            self._offsets.append(position)
            self._numbers.append(number)
            self._indents.append(indented - position)
            end = self._logical_end(indented)
            number += text.count("\n", position, end)
            position = end

    def _logical_end(self, position: int) -> int:
        """The offset after a logical line."""
        text, size = self._text, len(self._text)
        if (match := _PLAIN.match(text, position)) is not None:
            return match.end()
        depth = 0
        while True:
            while (match := _SIMPLE.match(text, position)) is not None:
                position = match.end()
                line = match[0]
                depth += line.count("(") + line.count("[") + line.count("{")
                depth -= line.count(")") + line.count("]") + line.count("}")
                if depth <= 0:
                    return position
            end = text.find("\n", position) + 1 or size
            match = _SPECIAL.search(text, position, end)
            if match is None:
                if depth <= 0 or end == size:
                    return end
                position = end
                continue
            one = match[0]
            position = match.end()
            if one in "([{":
                depth += 1
            elif one in ")]}":
                depth -= 1
            elif one == "#":
                position = end - 1 if text[end - 1] == "\n" else end
            elif one == "\\":
                position = end  # the next line continues this one
                if end == size:
                    raise MisreadError
            else:
                position = self._string_end(one, position)

    def _string_end(self, quote: str, position: int) -> int:
        for match in _STRING_END[quote].finditer(self._text, position):
            if match[0] == quote:
                return match.end()
            if match[0] == "\n":
                break
        raise MisreadError

    def _block(
        self, start: int, end: int, frame: str, divisible: frozenset[str]
    ) -> Iterator[tuple[int, int, int, tuple[int, int], str]]:
        """Find what to leave out of a block with the lines from `start` to before `end`."""
        indent = self._indents[start] if start < end else 0
        heads = list(self._heads(start, end, indent))
        run: int | None = None  # the start of the statements to leave out
        for head, following in zip(heads, [*heads[1:], end], strict=True):
            is_large = self._bytes(head, following) > LARGE and self._word(head) in divisible
            # The first and last statements stay, and those with blocks of their own.
            if is_large or following == end:
                if run is not None and self._bytes(run, head) > 0:
                    key = self._numbers[head], indent
                    yield run, head, self._numbers[run], key, frame
                run = None
                if is_large:
                    inner = f"{frame}{' ' * indent}def _():\n"
                    first = next(
                        (at for at in range(head, following) if self._indents[at] > indent), None
                    )
                    # Readers of a function also read a `with` in it, but not other functions.
                    within = _WITH if self._word(head) != "class" else divisible
                    if first is not None:
                        yield from self._block(first, following, inner, within)
            elif run is None and head != start and frame:
                run = head

    def _heads(self, start: int, end: int, indent: int) -> Iterator[int]:
        """The first lines of the statements in a block."""
        decorated = False
        for at in range(start, end):
            if self._indents[at] > indent:
                continue
            if self._indents[at] < indent:
                raise MisreadError
            word = self._word(at)
            if word in _CLAUSES or decorated:
                decorated = word == "@"
                continue
            decorated = word == "@"
            yield at

    def _word(self, at: int) -> str:
        match = _FIRST_WORD.match(self._text, self._offsets[at] + self._indents[at])
        return match[0] if match else ""

    def _bytes(self, start: int, end: int) -> int:
        last = self._offsets[end] if end < len(self._offsets) else len(self._text)
        return last - self._offsets[start]

    def _cut(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield runs of complete statements, each as long as a piece should be."""
        begin = start
        for head in [*self._heads(start, end, self._indents[start]), end]:
            if head > begin and (head == end or self._bytes(begin, head) >= self._size):
                yield self._numbers[begin], self._offsets[begin], self._offsets[head]
                begin = head
