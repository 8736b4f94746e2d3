"""Evaluates the arguments of a call in the text of a graph, without executing it."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

import torch

from rewriter.verification.bounded import Bounded, UncheckedError

_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b if abs(b) < 64 else math.nan,
}
_NAMED = {"inf": math.inf, "nan": math.nan, "cpu": "cpu", "cuda": "cpu", "xpu": "cpu"}


class Literals:
    """Evaluates expressions in which `values` are the variables."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def of(self, one: ast.expr) -> Any:
        if isinstance(one, ast.Constant):
            return one.value
        if isinstance(one, ast.Name):
            if one.id in self._values:
                return self._values[one.id]
            if one.id in _NAMED:
                return _NAMED[one.id]
            raise UncheckedError(f"{one.id} is not known")
        if isinstance(one, (ast.List, ast.Tuple)):
            return [self.of(x) for x in one.elts]
        if isinstance(one, ast.Attribute):
            return self._attribute(ast.unparse(one))
        if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub):
            return -self._number(one.operand)
        if isinstance(one, ast.BinOp) and type(one.op) in _ARITHMETIC:
            return self._arithmetic(one)
        if isinstance(one, ast.Call) and ast.unparse(one.func) in ("device", "torch.device"):
            return "cpu"
        raise UncheckedError(f"{ast.unparse(one)[:80]} is nothing that can be evaluated")

    def _arithmetic(self, one: ast.BinOp) -> Any:
        try:
            left, right = self._number(one.left), self._number(one.right)
            return _ARITHMETIC[type(one.op)](left, right)
        except (ZeroDivisionError, OverflowError, TypeError) as error:
            raise UncheckedError(f"{ast.unparse(one)[:80]}: {error}") from error

    def _number(self, one: ast.expr) -> Any:
        value = self.of(one)
        if isinstance(value, Bounded) or not isinstance(value, (int, float, complex)):
            raise UncheckedError(f"{ast.unparse(one)[:80]} is no number")
        return value

    def _attribute(self, text: str) -> Any:
        base, _, name = text.rpartition(".")
        value = getattr(torch, name, None) if base == "torch" else None
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return value
        raise UncheckedError(f"{text} is not known")
