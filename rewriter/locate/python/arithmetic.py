"""Reads sizes and strides, as wrappers of both languages write them, in one spelling.

The text comes from a file and is never executed.
"""

from __future__ import annotations

import re

import libcst as cst

from rewriter.locate.inputs import UNKNOWN
from rewriter.locate.python import syntax

_LONG = re.compile(r"(?<=\d)L+\b")
_CAST = re.compile(r"static_cast<[\w:]+>")
_FLOOR = re.compile(r"\bc10::div_floor_integer\b")
# The sign of each operator, and how strongly it binds: sums, products, a sign, and what has none.
_OPERATORS = {cst.Add: ("+", 0), cst.Subtract: ("-", 0), cst.Multiply: ("*", 1)}
_OPERATORS |= {cst.FloorDivide: ("//", 1)}
_SIGN, _ATOM = 2, 3
_DIGITS = 100  # of a number; those in wrappers have 64 bits


def dimension(text: str) -> str:
    """A size or stride as the runtimes read it: arithmetic over whole numbers and names of sizes,
    without spaces or needless brackets; `?` for anything else."""
    if text.isdecimal():
        return text
    node = syntax.expression(_FLOOR.sub("floor", _CAST.sub("", _LONG.sub("", text))).strip())
    read = None if node is None else _read(node)
    return UNKNOWN if read is None else read[0]


def _read(node: cst.BaseExpression) -> tuple[str, int] | None:
    """The text of an expression, and how strongly its outermost operator binds."""
    match node:
        case cst.Name(value=name) if name not in ("True", "False", "None"):
            return name, _ATOM
        case cst.Integer(value=number) if len(number) <= _DIGITS:
            return str(int(number, 0)), _ATOM
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            read = _read(inner)
            return None if read is None else ("-" + _bracketed(read, _SIGN), _SIGN)
        case cst.BinaryOperation(left=left, operator=operator, right=right):
            return _operation(type(operator), left, right)
        case cst.Call(func=cst.Name(value="floor"), args=[left, right]):
            return _operation(cst.FloorDivide, left.value, right.value)
    return None


def _operation(
    operator: type[cst.CSTNode], left: cst.BaseExpression, right: cst.BaseExpression
) -> tuple[str, int] | None:
    first, second = _read(left), _read(right)
    if operator not in _OPERATORS or first is None or second is None:
        return None
    sign, binds = _OPERATORS[operator]
    return f"{_bracketed(first, binds)}{sign}{_bracketed(second, binds + 1)}", binds


def _bracketed(read: tuple[str, int], binds: int) -> str:
    """A text, in brackets if its operator does not bind as strongly."""
    return read[0] if read[1] >= binds else f"({read[0]})"
