"""Reads the conditions under which a compiled graph is valid, as rows of the table of inputs.

Torch keeps them with a graph in its cache (`guards_expr`), as Python over the integers among the
inputs, the first of which is `L['t0']` (`produce_guards_expression` in torch/fx/experimental/
symbolic_shapes.py). The text comes from a file and is never executed. Comparisons of arithmetic are
rewritten with the wrapper's names for sizes; `rewriter/runtime/cpp/expected.h` describes the rows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewriter.locate.types import InputSpec

_MOST_BYTES = 1 << 16  # of a condition
_MOST = 200  # rows; torch writes a few dozen
_BITS = 53  # of a number
_BACKED = re.compile(r"s\d+$")  # sizes with an example value: torch guards only these
_UNBACKED = re.compile(r"(?:u|zu?f?)\d+$")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_INVERTED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Functions that torch prints in place of operators.
_COMPARISONS = {"Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">="}
_FUNCTIONS = {"Mod": ast.Mod(), "PythonMod": ast.Mod(), "FloorDiv": ast.FloorDiv()}
_ROW = re.compile(r"[\w+\-*/%(),<>=!]+(?: or [\w+\-*/%(),<>=!]+)*")


@dataclass(frozen=True)
class Guards:
    """`rows` are conditions such as `s77%8==0` or `s0==1 or s0%8==0`, all of which must hold.
    `unread` is the text of the other conditions, which are not checked."""

    rows: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


NO_GUARDS = Guards()


def read_guards(text: str, specs: Sequence[InputSpec]) -> Guards:
    """Read the conditions of a graph, for a wrapper with these inputs."""
    if not text:
        return Guards()
    try:
        return _read(text, specs)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Guards(unread=(_short(text),))


def _read(text: str, specs: Sequence[InputSpec]) -> Guards:
    if len(text) > _MOST_BYTES:
        raise ValueError
    tree = ast.parse(text, mode="eval").body
    reader = _Reader(_names(specs))
    rows: dict[str, None] = {}
    unread: list[str] = []
    for part in _conjuncts(tree):
        if (found := reader.rows(part)) is None or len(rows) + len(found) > _MOST:
            unread.append(_short(ast.unparse(part)))
        else:
            rows |= dict.fromkeys(found)
    return Guards(tuple(rows), tuple(unread))


def is_row(text: str) -> bool:
    """Whether a text from a file may be a row."""
    return _ROW.fullmatch(text) is not None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _names(specs: Sequence[InputSpec]) -> list[str]:
    """The names of the guarded sizes in order; empty for a size without a name."""
    integers = [spec.symbol for spec in specs if spec.kind == "int"]
    return [name for name in integers if not _UNBACKED.fullmatch(name)]


def _conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from _conjuncts(part)
    else:
        yield node


class _Reader:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def rows(self, node: ast.expr) -> list[str] | None:
        """The rows of one condition; `None` if it is not just comparisons of arithmetic."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            parts = [self._comparisons(part) for part in node.values]
            alternatives = [part[0] for part in parts if part is not None and len(part) == 1]
            return [" or ".join(alternatives)] if len(alternatives) == len(parts) else None
        return self._comparisons(node)

    def _comparisons(self, node: ast.expr, *, inverted: bool = False) -> list[str] | None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._comparisons(node.operand, inverted=not inverted)
        if isinstance(node, ast.Call):
            operator = _COMPARISONS.get(getattr(node.func, "id", ""))
            sides, operators = node.args, [operator]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            operators = [_OPERATORS.get(type(op)) for op in node.ops]
        else:
            return None
        texts = [self._text(side) for side in sides]
        # The inverse of a chain is not a chain: `not 1 < s0 < 4`.
        if len(texts) != len(operators) + 1 or (inverted and len(operators) > 1):
            return None
        rows = []
        for left, sign, right in zip(texts, operators, texts[1:], strict=False):
            if left is None or right is None or sign is None:
                return None
            rows.append(f"{left}{_INVERTED[sign] if inverted else sign}{right}")
        return rows

    def _text(self, node: ast.expr) -> str | None:
        read = self._arithmetic(node)
        return None if read is None else "".join(ast.unparse(read).split())

    def _arithmetic(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Constant):
            is_number = type(node.value) is int and node.value.bit_length() <= _BITS
            return node if is_number else None
        if isinstance(node, ast.Subscript):
            return self._size(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._arithmetic(node.operand)
            return inner and ast.UnaryOp(node.op, inner)
        operator: ast.operator | None = None
        parts: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            operator, parts = node.op, (node.left, node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            operator, parts = _FUNCTIONS.get(node.func.id), node.args
        read = [part for part in map(self._arithmetic, parts) if part is not None]
        if not parts or len(read) != len(parts):
            return None
        if operator is not None:
            return ast.BinOp(read[0], operator, read[1]) if len(read) == 2 else None
        assert isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            return ast.Call(node.func, read, [])
        return None

    def _size(self, node: ast.Subscript) -> ast.expr | None:
        """The size `L['t3']` by its name."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(node.value, ast.Name) or node.value.id != "L":
            return None
        if not isinstance(key, str) or not re.fullmatch(r"t\d{1,4}", key):
            return None
        number = int(key[1:])
        name = self._names[number] if number < len(self._names) else ""
        return ast.Name(name) if _BACKED.fullmatch(name) else None
