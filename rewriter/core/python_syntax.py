"""The one parser of Python text, so that no text breaks the parser, or a walk over its tree.

`ast.parse` raises more than `SyntaxError`: `RecursionError` and `MemoryError` on deep nesting,
`ValueError` on zero bytes and surrogates. It also parses chains (`a.b.c…`, `- - -a`, `elif` after
`elif`) that are far deeper than `ast.unparse`, libcst, or any recursive walk can follow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rewriter.core.limits import PYTHON_NESTING

# A text up to this length cannot exceed the bound: each level takes at least one character.
_SHORT = PYTHON_NESTING
_BITS = 1024  # numbers in wrappers have at most 64


class TooDeepError(Exception):
    """A text is nested too deeply. `line` is where, or 0 if the parser did not get that far."""

    def __init__(self, line: int, depth: str) -> None:
        super().__init__(f"nested {depth} deep")
        self.line = line
        self.depth = depth


def parse(text: str) -> ast.Module:
    """Parse a module. Raises `SyntaxError`, or `TooDeepError`, and nothing else."""
    try:
        tree = ast.parse(text)
    except ValueError as error:
        raise SyntaxError(str(error)) from error
    except (RecursionError, MemoryError) as error:
        raise TooDeepError(0, "too") from error
    _require_shallow(tree)
    return tree


def expression(text: str) -> ast.expr | None:
    """The expression in a text; `None` if it is not one, or is nested too deeply."""
    try:
        tree = parse(text)
    except (SyntaxError, TooDeepError):
        return None
    statement = tree.body[0] if len(tree.body) == 1 else None
    return statement.value if isinstance(statement, ast.Expr) else None


def _require_shallow(tree: ast.Module) -> None:
    level: list[ast.stmt] = list(tree.body)
    depth = 0
    while level:
        depth += 1
        if depth > PYTHON_NESTING:
            raise TooDeepError(level[0].lineno, f"more than {PYTHON_NESTING}")
        inner: list[ast.stmt] = []
        for statement in level:
            blocks = list(_blocks(statement))
            inner += blocks
            if blocks or _length(statement) > _SHORT:
                _require_shallow_inside(statement, depth)
        level = inner


def _blocks(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements directly inside another one."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(statement, name, ())
    for name in ("handlers", "cases"):
        for part in getattr(statement, name, ()):
            yield from part.body


def _length(statement: ast.stmt) -> int:
    """The approximate number of bytes of a statement; one of several lines may be of any length."""
    if statement.end_lineno != statement.lineno:
        return _SHORT + 1
    return (statement.end_col_offset or 0) - statement.col_offset


def _require_shallow_inside(statement: ast.stmt, depth: int) -> None:
    """Check the expressions of a statement, but not the statements in it."""
    level: list[ast.AST] = [statement]
    while level:
        depth += 1
        if depth > PYTHON_NESTING:
            line = next((one.lineno for one in level if isinstance(one, ast.expr)), 0)
            raise TooDeepError(line or statement.lineno, f"more than {PYTHON_NESTING}")
        children = [child for node in level for child in ast.iter_child_nodes(node)]
        for child in children:
            if isinstance(child, ast.Constant) and type(child.value) is int:
                _require_writable(child, child.value)
        level = [
            child
            for child in children
            if not isinstance(child, (ast.stmt, ast.Constant, ast.Name, ast.expr_context))
        ]


def _require_writable(node: ast.Constant, value: int) -> None:
    """Raise for a hexadecimal number that Python parses but refuses to write in decimal."""
    if value.bit_length() > _BITS:
        raise SyntaxError(
            f"a number of {value.bit_length()} bits", ("", node.lineno, node.col_offset + 1, "")
        )
