"""Reads the calls that launch something, with libcst, exactly as they are written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from rewriter.core import python_syntax
from rewriter.locate.python.grammar import PythonGrammar

_EMPTY = cst.Module([])
_NUMBERS = (cst.Integer, cst.Float, cst.Imaginary)
_LITERALS = (*_NUMBERS, cst.SimpleString, cst.ConcatenatedString)
_CONSTANTS = frozenset({"None", "True", "False", "inf", "nan", "nanj"})


@dataclass(frozen=True)
class WrittenArgument:
    """One argument as written. `value` is libcst's node, `keyword` empty for a positional one."""

    keyword: str
    value: cst.BaseExpression

    @property
    def expr(self) -> str:
        return code(self.value)


@dataclass(frozen=True)
class PythonValue:
    """How a probe may read an argument a second time: `expr` has no side effect.

    `base` is the variable that the value hangs on; `kind` says whether the expression is a plain
    name, a view of it, an element of it, a number or another literal, or arithmetic.
    """

    expr: str
    base: str
    kind: str


class UnreadableCallError(Exception):
    """A call that Python reads and libcst does not; `position` is its place among those given."""

    def __init__(self, position: int) -> None:
        super().__init__(f"call {position}")
        self.position = position


def parse_calls(texts: Sequence[str]) -> list[tuple[WrittenArgument, ...]]:
    """The arguments of each call; all are parsed in one go, since a parse has a fixed cost.

    Raises `UnreadableCallError`.
    """
    try:
        return [_arguments(line) for line in _module(texts).body] if texts else []
    except (cst.ParserSyntaxError, RecursionError, _NoCallError):
        pass
    for position, text in enumerate(texts):
        try:
            (line,) = _module([text]).body
            _arguments(line)
        except (cst.ParserSyntaxError, RecursionError, _NoCallError, ValueError) as error:
            raise UnreadableCallError(position) from error
    raise UnreadableCallError(0)


class _NoCallError(Exception):
    """The text of a call parses as another expression."""


def _module(texts: Sequence[str]) -> cst.Module:
    return cst.parse_module("".join(f"({text})\n" for text in texts))


def _arguments(line: cst.BaseStatement | cst.SimpleStatementLine) -> tuple[WrittenArgument, ...]:
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call):
        raise _NoCallError
    return tuple(
        WrittenArgument(argument.keyword.value if argument.keyword else "", argument.value)
        for argument in call.args
    )


def code(node: cst.CSTNode) -> str:
    """Source text of a node on one line."""
    text = _EMPTY.code_for_node(node)
    if "\n" not in text:
        return text
    if "#" in text or "\\" in text or "'''" in text or '"""' in text:
        # A comment would swallow the rest of the line, and a string may go over several.
        read = python_syntax.expression(f"({text})")
        return text if read is None else ast.unparse(read)
    return " ".join(text.split())


def elements(value: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    """The members of a list or tuple display, or the value itself."""
    if isinstance(value, (cst.List, cst.Tuple)):
        return tuple(inner for member in value.elements for inner in elements(member.value))
    return (value,)


def read_value(node: cst.BaseExpression, grammar: PythonGrammar) -> PythonValue | None:
    """How to read `node` again without running anything, or `None` where that is not known.

    `x.item()` and `c_void_p(x.data_ptr())` hand a kernel what is in `x`, so `x` is read.
    """
    if isinstance(node, cst.Name):
        if node.value in _CONSTANTS:
            return PythonValue(node.value, "", "literal")
        return PythonValue(node.value, node.value, "name")
    if isinstance(node, _LITERALS):
        return PythonValue(code(node), "", "number" if isinstance(node, _NUMBERS) else "literal")
    if isinstance(node, cst.UnaryOperation):
        inner = read_value(node.expression, grammar)
        return inner and PythonValue(
            code(node), inner.base, "arithmetic" if inner.base else inner.kind
        )
    if isinstance(node, (cst.BinaryOperation, cst.Comparison)):
        return _arithmetic(node, grammar)
    if isinstance(node, cst.Subscript):
        inner = read_value(node.value, grammar)
        constant = all(
            isinstance(part.slice, cst.Index) and isinstance(part.slice.value, _LITERALS)
            for part in node.slice
        )
        return PythonValue(code(node), inner.base, "element") if inner and constant else None
    if isinstance(node, cst.Call):
        return _call(node, grammar)
    return None


def _arithmetic(
    node: cst.BinaryOperation | cst.Comparison, grammar: PythonGrammar
) -> PythonValue | None:
    parts = (
        [node.left, node.right]
        if isinstance(node, cst.BinaryOperation)
        else [node.left, *(comparison.comparator for comparison in node.comparisons)]
    )
    read = [read_value(part, grammar) for part in parts]
    if any(
        part is None or part.kind not in ("name", "number", "literal", "arithmetic")
        for part in read
    ):
        return None
    bases = [part.base for part in read if part and part.base]
    return PythonValue(code(node), bases[0] if bases else "", "arithmetic")


def _call(node: cst.Call, grammar: PythonGrammar) -> PythonValue | None:
    path = callee(node.func)
    if path == "c_void_p" and len(node.args) == 1:
        return read_value(node.args[0].value, grammar)
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("item", "data_ptr"):
        return read_value(node.func.value, grammar)
    if grammar.effect(path) != "view":
        return None
    method = isinstance(node.func, cst.Attribute) and not path.startswith(("aten.", "torch."))
    if method:
        assert isinstance(node.func, cst.Attribute)
        viewed = read_value(node.func.value, grammar)
    else:
        viewed = read_value(node.args[0].value, grammar) if node.args else None
    expr = code(node)
    # A comment inside would swallow the rest of a probe's line.
    return (
        PythonValue(expr, viewed.base, "view")
        if viewed and viewed.base and "#" not in expr
        else None
    )


def callee(node: cst.BaseExpression) -> str:
    """The same text of what is called as `outline.callee` gives, from libcst's nodes."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return f"{callee(node.value)}.{node.attr.value}"
    if isinstance(node, cst.Subscript):
        return f"{callee(node.value)}[]"
    if isinstance(node, cst.Call):
        return f"{callee(node.func)}()"
    return "?"
