"""Reads one expression of a C++ wrapper: which variable it passes, and how to read that again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import tree_sitter

from rewriter.locate.cpp.grammar import CppGrammar
from rewriter.locate.cpp.outline import CppOutline, without_templates

_WRAPPER = "wrap_with_raii_handle_if_needed"
_CAST = "static_cast"
_NUMBERS = ("number_literal", "true", "false", "char_literal")
_ARITHMETIC = (
    "binary_expression",
    "unary_expression",
    "conditional_expression",
    "subscript_expression",
)
_ARRAY = re.compile(r"(std::array|std::vector)<(const )?AtenTensorHandle\b")


@dataclass(frozen=True)
class CppValue:
    """`name` is the variable that is read, empty for none; `expr` can be evaluated again safely.

    `view`: the expression is a view of the variable's memory. `taken`: evaluating the expression as
    written takes ownership of the variable or empties it, so it cannot be used afterwards.
    `address`: the variable is passed by address, to be written or because it may be absent.
    `const` is that of a cast.
    """

    kind: Literal["variable", "view", "number", "arithmetic", "other"]
    name: str
    expr: str
    taken: bool = False
    address: bool = False
    const: bool | None = None


class ValueReader:
    """Reads the expressions of one wrapper."""

    def __init__(self, outline: CppOutline, grammar: CppGrammar) -> None:
        self._outline = outline
        self._grammar = grammar

    def read(self, node: tree_sitter.Node) -> CppValue:
        text = self._outline.read(node)
        kind = node.type
        if kind in ("identifier", "type_identifier"):
            return CppValue("variable", text, text)
        if kind in _NUMBERS or (
            kind == "unary_expression" and node.named_children[-1].type in _NUMBERS
        ):
            return CppValue("number", "", text)
        if kind in ("parenthesized_expression", "argument_list") and node.named_child_count == 1:
            return self.read(node.named_children[0])
        if kind == "cast_expression":
            written = node.child_by_field_name("type")
            const = written is not None and "const " in self._outline.read(written)
            return replace(self.read(_field(node, "value")), const=const)
        if kind == "pointer_expression":
            inner = _field(node, "argument")
            if text.startswith("*"):
                return self.read(inner)
            if inner.type == "subscript_expression":
                target = self._outline.read(inner)
                return CppValue("variable", target, target, address=True)
            return replace(self.read(inner), address=True)
        if kind == "call_expression":
            return self._call(node, text)
        if kind in _ARITHMETIC:
            return CppValue("arithmetic", self._first_name(node), text)
        return CppValue("other", "", text)

    def _call(self, node: tree_sitter.Node, text: str) -> CppValue:
        function = _field(node, "function")
        callee = self.callee(function)
        arguments = _field(node, "arguments").named_children
        match self._grammar.effect(callee):
            case "cast" | "owner" as effect if function.type == "field_expression":
                inner = self.read(_field(function, "argument"))
                return replace(inner, taken=True) if effect == "owner" else inner
            case "cast" if arguments:
                inner = self.read(arguments[0])
                if callee == _WRAPPER and inner.kind == "view":
                    return replace(inner, expr=text)
                return replace(inner, taken=True) if callee == "std::move" else inner
            case "owner" if arguments:
                return replace(self.read(arguments[0]), taken=True)
            case "view" if arguments:
                # Evaluated as written, it would return a new handle that somebody has to free.
                base = self.read(arguments[0])
                return CppValue("view", base.name, f"{_WRAPPER}({text})")
            case "scalar":
                return CppValue("arithmetic", self._first_name(node), text)
        return CppValue("other", "", text)

    def elements(self, node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
        """The members of `std::array<AtenTensorHandle, 2>{a, b}.data()`; else the node itself."""
        array = node
        if node.type == "call_expression" and self.callee(_field(node, "function")) == _CAST:
            given = _field(node, "arguments").named_children
            array = given[0] if given else node
        if array.type == "call_expression":
            function = _field(array, "function")
            literal = function.child_by_field_name("argument")
            if (
                literal is not None
                and literal.type == "compound_literal_expression"
                and _ARRAY.match(self._outline.read(literal))
            ):
                yield from _field(literal, "value").named_children
                return
        yield node

    def callee(self, node: tree_sitter.Node) -> str:
        """The name of the called function, without template arguments and white space."""
        return without_templates("".join(self._outline.read(node).split()))

    def _first_name(self, node: tree_sitter.Node) -> str:
        if node.type == "identifier":
            return self._outline.read(node)
        parts = node.named_children
        if node.type == "call_expression" and _field(node, "function").type != "field_expression":
            parts = _field(node, "arguments").named_children
        return next(filter(None, map(self._first_name, parts)), "")


def _field(node: tree_sitter.Node, name: str) -> tree_sitter.Node:
    """A field that every node of this type has."""
    child = node.child_by_field_name(name)
    assert child is not None, f"{node.type} without {name}"
    return child
