"""Reads the arguments of calls that launch something, exactly as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import libcst as cst

from rewriter.locate.arguments import DeclaredArgument
from rewriter.locate.flow import Flow
from rewriter.locate.python.forms import Template, on_one_line
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.statements import Statement, elements, path, template
from rewriter.locate.types import Argument

# Names that stand for a value, and for no variable.
_CONSTANTS = frozenset({"None", "True", "False", "inf", "nan", "nanj"})
_LITERALS = (cst.BaseNumber, cst.SimpleString, cst.ConcatenatedString)
_NOTHING = Template("")


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """How a probe may read a value a second time: evaluating `expr` has no side effect.

    `base` is the variable that the value depends on. `kind` says whether the expression is a plain
    name, a view of it, an element of it, a number or another literal, or arithmetic; it is empty if
    that is not known. The texts are those of all calls of one form.
    """

    expr: Template
    base: Template = _NOTHING
    kind: Literal["", "name", "view", "element", "number", "literal", "arithmetic"] = ""


@dataclass(frozen=True, slots=True)
class WrittenArgument:
    """One argument as written. `keyword` is empty for a positional one.

    `values` are the members of a list, or the argument itself; `is_number`: it is written as a
    number.
    """

    keyword: str
    is_number: bool
    values: tuple[WrittenValue, ...]


@lru_cache(maxsize=10_000)
def read_arguments(call: cst.Call, grammar: PythonGrammar) -> tuple[WrittenArgument, ...]:
    """The arguments of all calls of one form."""
    return tuple(
        WrittenArgument(
            arg.keyword.value if arg.keyword else "",
            isinstance(arg.value, (cst.Integer, cst.Float)),
            tuple(
                _value(member, grammar) or WrittenValue(template(member))
                for member in _members(arg.value)
            ),
        )
        for arg in call.args
    )


def arguments(
    statement: Statement,
    written: Sequence[WrittenArgument],
    declared: Sequence[DeclaredArgument],
    flow: Flow,
) -> Iterator[Argument]:
    """The arguments of a launch: a list of tensors makes several."""
    for argument, hint in zip(written, declared, strict=True):
        for value in argument.values:
            yield _argument(statement, value, hint, flow)


def _argument(
    statement: Statement, value: WrittenValue, declared: DeclaredArgument, flow: Flow
) -> Argument:
    base = value.base.fill(statement.values)
    expr = base if value.expr is value.base else on_one_line(value.expr.fill(statement.values))
    if not base:
        return Argument(expr, expr, "", "in", "scalar" if value.kind == "number" else "other")
    kind = declared.type or ("scalar" if value.kind == "arithmetic" else flow.type_of(base))
    if kind != "tensor":
        return Argument(base, expr, flow.get(base).root, "in", kind, parameter=declared.parameter)
    role = flow.role(base, declared.role, expr if value.kind == "view" else "")
    hazard = flow.hazard(base, declared.role)
    root = flow.get(base).root
    return Argument(base, expr, root, role, kind, hazard=hazard, parameter=declared.parameter)


def _value(node: cst.BaseExpression, grammar: PythonGrammar) -> WrittenValue | None:
    """How to read `node` again without running anything, or `None` if that is not known.

    `x.item()` and `c_void_p(x.data_ptr())` pass the content of `x` to a kernel, so `x` is read.
    """
    text = template(node)
    match node:
        case cst.Name(value=name) if name not in _CONSTANTS:
            return WrittenValue(text, text, "name")
        case cst.BaseNumber():
            return WrittenValue(text, kind="number")
        case cst.Name() | cst.SimpleString() | cst.ConcatenatedString():
            return WrittenValue(text, kind="literal")
        case cst.UnaryOperation(expression=inner):
            parts = [inner]
        case cst.BinaryOperation(left=left, right=right):
            parts = [left, right]
        case cst.Comparison(left=left, comparisons=others):
            parts = [left, *(other.comparator for other in others)]
        case cst.Subscript(value=inner, slice=places):
            subscripted = _value(inner, grammar) if all(map(_is_literal, places)) else None
            return subscripted and replace(subscripted, expr=text, kind="element")
        case cst.Call():
            return _shown(node, grammar)
        case _:
            return None
    read = [value for value in (_value(part, grammar) for part in parts) if value is not None]
    if len(read) < len(parts) or any(value.kind in ("view", "element") for value in read):
        return None
    base = next((value.base for value in read if value.base is not _NOTHING), _NOTHING)
    is_signed = len(parts) == 1 and base is _NOTHING  # `-1`
    return WrittenValue(text, base, read[0].kind if is_signed else "arithmetic")


def _shown(node: cst.Call, grammar: PythonGrammar) -> WrittenValue | None:
    """How to read the memory that a call shows."""
    callee = path(node.func).text
    receiver = node.func.value if isinstance(node.func, cst.Attribute) else None
    first = node.args[0].value if node.args else None
    if callee == "c_void_p" and first is not None and len(node.args) == 1:
        return _value(first, grammar)
    if receiver is not None and callee.endswith((".item", ".data_ptr")):
        return _value(receiver, grammar)
    if receiver is not None and not callee.startswith(("aten.", "torch.")):
        first = receiver
    if first is None or grammar.effect(callee) != "view":
        return None
    shown = _value(first, grammar)
    is_memory = shown is not None and shown.base is not _NOTHING
    return replace(shown, expr=template(node), kind="view") if is_memory else None  # type: ignore[type-var]


def _is_literal(part: cst.SubscriptElement) -> bool:
    return isinstance(part.slice, cst.Index) and isinstance(part.slice.value, _LITERALS)


def _members(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The members of a list or tuple display, or else the value itself."""
    for element in elements(value):
        if element is value:
            yield element
        else:
            yield from _members(element)
