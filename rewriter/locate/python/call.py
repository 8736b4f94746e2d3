"""Reads the calls that launch something, with libcst, exactly as they are written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from rewriter.core import python_syntax
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.written_form import Template, WrittenForm, form_of

_EMPTY = cst.Module([])
_NUMBERS = (cst.Integer, cst.Float, cst.Imaginary)
_LITERALS = (*_NUMBERS, cst.SimpleString, cst.ConcatenatedString)
_FORMS = 10_000  # that are kept
_CONSTANTS = frozenset({"None", "True", "False", "inf", "nan", "nanj"})


@dataclass(frozen=True, slots=True)
class PythonValue:
    """How a probe may read an argument a second time: `expr` has no side effect.

    `base` is the variable that the value hangs on; `kind` says whether the expression is a plain
    name, a view of it, an element of it, a number or another literal, or arithmetic; it is empty
    where nothing is known. `view` is a view in the spacing of `ast.unparse`, as data flow has it.
    """

    expr: str
    base: str
    kind: str
    view: str = ""


@dataclass(frozen=True, slots=True)
class WrittenArgument:
    """One argument as written. `keyword` is empty for a positional one.

    `values` are the members of a list, or the argument itself; `is_number` says that it is written
    as a number.
    """

    keyword: str
    is_number: bool
    values: tuple[PythonValue, ...]


class UnreadableCallError(Exception):
    """A call that Python reads and libcst does not."""


class CallReader:
    """Reads calls. Those that differ in variables and numbers alone are parsed once."""

    def __init__(self, grammar: PythonGrammar) -> None:
        self._grammar = grammar
        self._calls: dict[tuple[str, int], tuple[_ArgumentTemplate, ...]] = {}
        self._views: dict[tuple[str, int], Template] = {}

    def read(self, text: str) -> tuple[WrittenArgument, ...]:
        """The arguments of a call. Raises `UnreadableCallError`.

        `RecursionError` where one is nested too deeply: libcst nests what is a list to Python.
        """
        form = form_of(text)
        templates = self._calls.get(form.key)
        if templates is None:
            if len(self._calls) >= _FORMS:
                self._calls.clear()
            templates = tuple(
                _ArgumentTemplate(argument, form)
                for argument in _arguments(form.text, self._grammar)
            )
            self._calls[form.key] = templates
        return tuple(template.fill(form.values) for template in templates)

    def unparse(self, text: str) -> str:
        """An expression in the spacing of `ast.unparse`."""
        form = form_of(text)
        template = self._views.get(form.key)
        if template is None:
            if len(self._views) >= _FORMS:
                self._views.clear()
            template = self._views[form.key] = form.template(_unparse(form.text))
        return template.fill(form.values)


class _ArgumentTemplate:
    """An argument of a form of calls."""

    __slots__ = ("_argument", "_values")

    def __init__(self, argument: WrittenArgument, form: WrittenForm) -> None:
        self._argument = argument
        self._values = [
            (form.template(one.expr), form.template(one.base), one.kind, form.template(one.view))
            for one in argument.values
        ]

    def fill(self, values: Sequence[str]) -> WrittenArgument:
        return WrittenArgument(
            self._argument.keyword,
            self._argument.is_number,
            tuple(
                PythonValue(expr.fill(values), base.fill(values), kind, view.fill(values))
                for expr, base, kind, view in self._values
            ),
        )


def _arguments(text: str, grammar: PythonGrammar) -> tuple[WrittenArgument, ...]:
    try:
        module = cst.parse_module(f"({text})\n")
    except (cst.ParserSyntaxError, RecursionError) as error:
        raise UnreadableCallError from error
    line = module.body[0] if len(module.body) == 1 else None
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call):
        raise UnreadableCallError
    return tuple(
        WrittenArgument(
            argument.keyword.value if argument.keyword else "",
            isinstance(argument.value, (cst.Integer, cst.Float)),
            tuple(_value(member, grammar) for member in _elements(argument.value)),
        )
        for argument in call.args
    )


def _value(node: cst.BaseExpression, grammar: PythonGrammar) -> PythonValue:
    read = read_value(node, grammar)
    if read is None:
        return PythonValue(code(node), "", "")
    return replace(read, view=_unparse(read.expr)) if read.kind == "view" else read


def _unparse(expr: str) -> str:
    return ast.unparse(ast.parse(expr, mode="eval"))


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


def _elements(value: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    """The members of a list or tuple display, or the value itself."""
    if isinstance(value, (cst.List, cst.Tuple)):
        return tuple(inner for member in value.elements for inner in _elements(member.value))
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
