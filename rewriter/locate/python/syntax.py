"""The one way into libcst's parser, and the errors of Python text.

The parser is recursive, and ends in a segmentation fault where the stack ends: of 512 kB, it can
take 74 nested brackets, 350 operators in a row, or 15 nested blocks. So the depth of a text is
bounded, and what is deeper than generated code is read by a thread with a large stack.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import libcst as cst

_TOKEN = re.compile(r"\w+|[ \t\f]+|\r\n|.", re.DOTALL)
_OPERATORS = frozenset(
    {"not", "and", "or", "in", "is", "lambda", "for", "if", "else", "await", "yield", "from"}
)
# The stack that a bracket and a block take, in that of an operator, which is 1.5 kB.
_BRACKET, _BLOCK = 5, 20
_SHALLOW = 100  # for any stack
_DEEPEST = 250  # in one statement, so that walks over its tree need no more frames than Python has
_MOST_CLAUSES = 200  # `elif` after `elif`
_STACK = 64 << 20
_PLACE = re.compile(r"error at (\d+):(\d+): ")


class PythonError(Exception):
    """A text is no Python. `line` counts from 1, and is 0 if the parser does not say where it is;
    `column` counts from 0."""

    def __init__(self, message: str, line: int = 1, column: int = 0) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


class TooDeepError(PythonError):
    """A text is nested more deeply than the parser can follow."""


def statement(text: str) -> cst.SimpleStatementLine:
    """The simple statements of one logical line. Raises `PythonError`."""
    read = _parsed(cst.parse_statement, text + "\n", _depth(text))
    if not isinstance(read, cst.SimpleStatementLine):
        raise PythonError("invalid syntax")
    return read


@lru_cache(maxsize=256)
def module(text: str, blocks: int) -> cst.Module:
    """The tree of a module with so many blocks in each other. Raises `PythonError`."""
    return _parsed(cst.parse_module, text, _depth(text) + _BLOCK * blocks)


def expression(text: str) -> cst.BaseExpression | None:
    """The expression in a text; `None` if it is not one, or is nested too deeply."""
    try:
        match statement(text).body:
            case [cst.Expr(value=value)]:
                return value
    except PythonError:
        pass
    return None


Read = TypeVar("Read")


def _parsed(parser: Callable[[str], Read], text: str, depth: int) -> Read:
    try:
        if depth <= _SHALLOW:
            return parser(text)
        from concurrent.futures import ThreadPoolExecutor

        size = threading.stack_size(_STACK)
        try:
            with ThreadPoolExecutor(1) as threads:
                return threads.submit(parser, text).result()
        finally:
            threading.stack_size(size)
    except cst.ParserSyntaxError as error:
        raise _error(error) from error
    except cst.CSTValidationError as error:  # `yield*x`, which Python accepts
        raise PythonError(f"libcst does not read this: {error}", 0) from error


def is_no_token(text: str) -> bool:
    """Whether a text has a character that begins no token."""
    try:
        module(text, 0)
    except PythonError as error:
        return not error.line
    return False


def _error(error: cst.ParserSyntaxError) -> PythonError:
    """The place of a parser's error is in its message; that of a tokenizer's is not known."""
    message = error.message.removeprefix("parser error: ").removeprefix("tokenizer error: ")
    if (place := _PLACE.match(message)) is None:
        return PythonError(message, 0)
    wanted = "expected an indented block" if "expected INDENT" in message else "invalid syntax"
    return PythonError(wanted, int(place[1]), int(place[2]))


def _depth(text: str) -> int:
    """The stack that reading a text takes. Raises `TooDeepError` if that may be too much.

    What recurses is a bracket in a bracket, and operators, strings or clauses in a row. A comma or
    the end of a statement ends a row. In a string, which forms have none of, anything counts.
    """
    rows = [0]  # what each open bracket takes, with the row in it
    line, clauses, deepest = 1, 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("(", "[", "{"):
            rows.append(_BRACKET)
        elif token in (")", "]", "}"):
            if len(rows) > 1:
                rows.pop()
            rows[-1] += 1
        elif token in (",", ";", "\n", "\r", "\r\n"):
            if token == "," or len(rows) == 1:
                rows[-1] = _BRACKET if len(rows) > 1 else 0
        elif token in _OPERATORS or not (token.isspace() or token[0].isalnum() or token == "_"):
            rows[-1] += 1
        clauses += token == "elif"
        line += token.count("\n")
        deepest = max(deepest, sum(rows))
        if clauses > _MOST_CLAUSES or deepest > _DEEPEST:
            raise TooDeepError("nested too deeply", line)
    return deepest + clauses
