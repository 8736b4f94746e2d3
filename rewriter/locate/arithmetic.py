"""Reads arithmetic over sizes, and writes it in one spelling: without spaces or needless brackets.

The text comes from a file and is never executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import libcst as cst

from rewriter.locate.python import syntax

# The sign of each operator, and how strongly it binds.
_SIGNS: dict[type[cst.CSTNode], str] = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
}
_SUM, _PRODUCT, _NEGATIVE, _ATOM = range(4)
_BINDING = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
# Functions that torch writes in place of operators.
_FUNCTIONS = {"floor": "//", "FloorDiv": "//", "Mod": "%", "PythonMod": "%"}


@dataclass(frozen=True)
class Arithmetic:
    """What is arithmetic: whole numbers of so many bits, operators by their signs, or `min` and
    `max`, and what `leaf` has a name for."""

    leaf: Callable[[cst.BaseExpression], str | None]
    operators: Collection[str]
    bits: int

    def read(self, node: cst.BaseExpression) -> str | None:
        """The text of an expression; `None` if it is not just arithmetic."""
        found = self._read(node)
        return None if found is None else found[0]

    def _read(self, node: cst.BaseExpression) -> tuple[str, int] | None:
        """The text of an expression, and how strongly its outermost operator binds."""
        match node:
            case cst.Integer(value=value):
                number = int(value, 0)
                return (str(number), _ATOM) if number.bit_length() <= self.bits else None
            case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
                read = self._read(inner)
                return None if read is None else ("-" + _bracketed(read, _NEGATIVE), _NEGATIVE)
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                return self._operation(_SIGNS.get(type(operator), ""), [left, right])
            case cst.Call(func=cst.Name(value=name), args=args) if not any(x.keyword for x in args):
                return self._operation(_FUNCTIONS.get(name, name), [one.value for one in args])
        text = self.leaf(node)
        return None if text is None else (text, _ATOM)

    def _operation(
        self, operator: str, operands: list[cst.BaseExpression]
    ) -> tuple[str, int] | None:
        read = [one for one in map(self._read, operands) if one is not None]
        if operator not in self.operators or not read or len(read) != len(operands):
            return None
        binding = _BINDING.get(operator)
        if binding is None:
            return f"{operator}({','.join(text for text, _ in read)})", _ATOM
        if len(read) != 2:
            return None
        left, right = read
        return f"{_bracketed(left, binding)}{operator}{_bracketed(right, binding + 1)}", binding


def _bracketed(read: tuple[str, int], binding: int) -> str:
    """A text, in brackets if its operator does not bind as strongly."""
    return read[0] if read[1] >= binding else f"({read[0]})"


def _name(node: cst.BaseExpression) -> str | None:
    return node.value if isinstance(node, cst.Name) else None


_SIZES = Arithmetic(_name, ("+", "-", "*", "//"), 63)


def of_sizes(text: str) -> str | None:
    """Arithmetic over the names of sizes; `None` if a text is something else."""
    node = syntax.expression(text)
    return None if node is None else _SIZES.read(node)
