"""Reads the arguments of calls that launch something, exactly as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import libcst as cst

from rewriter.locate.python.forms import Template
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.statements import Statement, path, template, word

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


class CallReader:
    """Reads calls; what the form of a call tells is read once."""

    def __init__(self, grammar: PythonGrammar) -> None:
        self._grammar = grammar
        self._of_form = lru_cache(maxsize=10_000)(self._read)

    def read(self, statement: Statement, call: cst.Call) -> Sequence[WrittenArgument]:
        """The arguments of a call. Their values are to be filled with those of the statement."""
        arguments, is_complete = self._of_form(call)
        if is_complete:
            return arguments
        return [
            replace(one, keyword=Template(one.keyword).fill(statement.values)) for one in arguments
        ]

    def _read(self, call: cst.Call) -> tuple[tuple[WrittenArgument, ...], bool]:
        arguments = tuple(
            WrittenArgument(
                arg.keyword.value if arg.keyword else "",
                isinstance(arg.value, (cst.Integer, cst.Float)),
                tuple(
                    self._value(one) or WrittenValue(template(one)) for one in _members(arg.value)
                ),
            )
            for arg in call.args
        )
        # `out0=` is a placeholder, as all names that end in a digit.
        return arguments, not any(one.keyword[-1:].isdecimal() for one in arguments)

    def _value(self, node: cst.BaseExpression) -> WrittenValue | None:
        """How to read `node` again without running anything, or `None` if that is not known.

        `x.item()` and `c_void_p(x.data_ptr())` pass the content of `x` to a kernel, so `x` is read.
        """
        match node:
            case cst.Name(value=name):
                if name in _CONSTANTS:
                    return WrittenValue(word(node), kind="literal")
                return WrittenValue(word(node), word(node), "name")
            case cst.BaseNumber():
                return WrittenValue(template(node), kind="number")
            case cst.SimpleString() | cst.ConcatenatedString():
                return WrittenValue(template(node), kind="literal")
            case cst.UnaryOperation(expression=inner):
                read = self._value(inner)
                is_plain = read is None or read.base is _NOTHING
                return read and replace(
                    read, expr=template(node), kind=read.kind if is_plain else "arithmetic"
                )
            case cst.BinaryOperation(left=left, right=right):
                return self._arithmetic(node, [left, right])
            case cst.Comparison(left=left, comparisons=others):
                return self._arithmetic(node, [left, *(one.comparator for one in others)])
            case cst.Subscript(value=value, slice=parts):
                read = self._value(value)
                return read and (
                    replace(read, expr=template(node), kind="element")
                    if all(map(_is_literal, parts))
                    else None
                )
            case cst.Call():
                return self._call(node)
        return None

    def _arithmetic(
        self, node: cst.BaseExpression, parts: Sequence[cst.BaseExpression]
    ) -> WrittenValue | None:
        read = [one for one in map(self._value, parts) if one is not None]
        if len(read) != len(parts) or any(one.kind in ("", "view", "element") for one in read):
            return None
        bases = (one.base for one in read if one.base is not _NOTHING)
        return WrittenValue(template(node), next(bases, _NOTHING), "arithmetic")

    def _call(self, node: cst.Call) -> WrittenValue | None:
        called = path(node.func).text
        receiver = node.func.value if isinstance(node.func, cst.Attribute) else None
        first = node.args[0].value if node.args else None
        if called == "c_void_p" and first is not None and len(node.args) == 1:
            return self._value(first)
        if receiver is not None and called.endswith((".item", ".data_ptr")):
            return self._value(receiver)
        if self._grammar.effect(called) != "view":
            return None
        if receiver is not None and not called.startswith(("aten.", "torch.")):
            first = receiver
        viewed = None if first is None else self._value(first)
        if viewed is None or viewed.base is _NOTHING:
            return None
        return replace(viewed, expr=template(node), kind="view")


def _is_literal(part: cst.SubscriptElement) -> bool:
    return isinstance(part.slice, cst.Index) and isinstance(part.slice.value, _LITERALS)


def _members(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The members of a list or tuple display, or else the value itself."""
    if isinstance(value, (cst.List, cst.Tuple)):
        for member in value.elements:
            yield from _members(member.value)
    else:
        yield value
