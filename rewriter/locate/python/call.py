"""Reads the arguments of calls that launch something, exactly as they are written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.core import python_syntax
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.outline import callee
from rewriter.locate.python.written_form import Template, WrittenForm, form_of

_NUMBERS = (int, float, complex)
_LITERALS = (*_NUMBERS, str, bytes)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_SPACES = b" \t\r\n\f"
_OPEN = ord("(")
# Text before a bracket that is not one of a call; it is searched for in this many bytes.
_WINDOW = 32
_AWAITS_OPERAND = re.compile(
    rb"(?:^|[(\[{,=+\-*/%&|^<>~:@]|\b(?:in|is|not|and|or|if|else|await))\s*$"
)
_FORMS = 10_000  # the most forms of calls that are kept
_CONSTANTS = frozenset({"None", "True", "False", "inf", "nan", "nanj"})


@dataclass(frozen=True, slots=True)
class PythonValue:
    """How a probe may read an argument a second time: evaluating `expr` has no side effect.

    `base` is the variable that the value depends on. `kind` says whether the expression is a plain
    name, a view of it, an element of it, a number or another literal, or arithmetic; it is empty if
    that is not known. `view` is a view in the spacing of `ast.unparse`, as data flow uses it.
    """

    expr: str
    base: str
    kind: str
    view: str = ""


@dataclass(frozen=True, slots=True)
class WrittenArgument:
    """One argument as written. `keyword` is empty for a positional one.

    `values` are the members of a list, or the argument itself; `is_number`: it is written as a
    number.
    """

    keyword: str
    is_number: bool
    values: tuple[PythonValue, ...]


class UnreadableCallError(Exception):
    """The text is not a call, or is nested too deeply."""


class CallReader:
    """Reads calls. Calls that differ only in variables and numbers are parsed once."""

    def __init__(self, grammar: PythonGrammar) -> None:
        self._grammar = grammar
        self._calls: dict[tuple[str, int], tuple[_ArgumentTemplate, ...]] = {}
        self._views: dict[tuple[str, int], Template] = {}

    def read(self, text: str) -> tuple[WrittenArgument, ...]:
        """The arguments of a call. Raises `UnreadableCallError`."""
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
    """An argument of calls of one form."""

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
    source = f"({text})"
    call = python_syntax.expression(source)
    if not isinstance(call, ast.Call):
        raise UnreadableCallError
    return tuple(_ValueReader(source, grammar).arguments(call))


def _unparse(expr: str) -> str:
    return ast.unparse(ast.parse(expr, mode="eval"))


def _on_one_line(text: str) -> str:
    if "\n" not in text:
        return text
    if "#" in text or "\\" in text or "'''" in text or '"""' in text:
        # Joining the lines as text would extend a comment, or change a string over several lines.
        read = python_syntax.expression(f"({text})")
        return text if read is None else ast.unparse(read)
    return " ".join(text.split())


def _is_literal(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, _LITERALS)
        and (not isinstance(node.value, bool))
    )


def _is_number(node: ast.expr) -> bool:
    return _is_literal(node) and isinstance(getattr(node, "value", None), _NUMBERS)


def _written(call: ast.Call) -> list[tuple[str, ast.expr]]:
    """The arguments of a call in written order, with their keywords."""
    starred = (one.value if isinstance(one, ast.Starred) else one for one in call.args)
    found = [("", one) for one in starred]
    found += ((one.arg or "", one.value) for one in call.keywords)
    return sorted(found, key=lambda one: (one[1].lineno, one[1].col_offset))


class _ValueReader:
    """Reads values of one text, and quotes them exactly."""

    def __init__(self, source: str, grammar: PythonGrammar) -> None:
        self._grammar = grammar
        self._data = source.encode()
        self._lines = [0, *(match.end() for match in _LINE_END.finditer(self._data))]

    def arguments(self, call: ast.Call) -> Iterator[WrittenArgument]:
        """Read the arguments of a call that is the whole text."""
        for keyword, node in _written(call):
            yield WrittenArgument(
                keyword,
                _is_number(node) and not isinstance(getattr(node, "value", None), complex),
                tuple(map(self._value, _elements(node))),
            )

    def _value(self, node: ast.expr) -> PythonValue:
        read = self.read(node)
        if read is None:
            return PythonValue(self._code(node), "", "")
        return replace(read, view=_unparse(read.expr)) if read.kind == "view" else read

    def _code(self, node: ast.expr) -> str:
        """Source text of a node on one line, with the brackets around it."""
        data = self._data
        start = self._lines[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        while True:
            left, right = start - 1, end
            while left >= 0 and data[left] in _SPACES:
                left -= 1
            while right < len(data) and data[right] in _SPACES:
                right += 1
            if left < 0 or data[left] != _OPEN or data[right : right + 1] != b")":
                break
            # The brackets of a call follow the called function.
            if not _AWAITS_OPERAND.search(data[max(0, left - _WINDOW) : left]):
                break
            start, end = left, right + 1
        return _on_one_line(data[start:end].decode())

    def read(self, node: ast.expr) -> PythonValue | None:
        """How to read `node` again without running anything, or `None` if that is not known.

        `x.item()` and `c_void_p(x.data_ptr())` pass the content of `x` to a kernel, so `x` is read.
        """
        if isinstance(node, ast.Name):
            if node.id in _CONSTANTS:
                return PythonValue(node.id, "", "literal")
            return PythonValue(node.id, node.id, "name")
        if isinstance(node, ast.Constant):
            if node.value is None or isinstance(node.value, bool):
                return PythonValue(repr(node.value), "", "literal")
            if not _is_literal(node):
                return None
            return PythonValue(self._code(node), "", "number" if _is_number(node) else "literal")
        if isinstance(node, ast.UnaryOp):
            inner = self.read(node.operand)
            return inner and PythonValue(
                self._code(node), inner.base, "arithmetic" if inner.base else inner.kind
            )
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, [node.left, node.right])
        if isinstance(node, ast.Compare):
            return self._arithmetic(node, [node.left, *node.comparators])
        if isinstance(node, ast.Subscript):
            inner = self.read(node.value)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if inner and all(map(_is_literal, parts)):
                return PythonValue(self._code(node), inner.base, "element")
            return None
        if isinstance(node, ast.Call):
            return self._call(node)
        return None

    def _arithmetic(self, node: ast.expr, parts: Sequence[ast.expr]) -> PythonValue | None:
        read = [self.read(part) for part in parts]
        if any(
            part is None or part.kind not in ("name", "number", "literal", "arithmetic")
            for part in read
        ):
            return None
        bases = [part.base for part in read if part and part.base]
        return PythonValue(self._code(node), bases[0] if bases else "", "arithmetic")

    def _call(self, node: ast.Call) -> PythonValue | None:
        path, given = callee(node), _written(node)
        if path == "c_void_p" and len(given) == 1:
            return self.read(given[0][1])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "data_ptr"):
            return self.read(node.func.value)
        if self._grammar.effect(path) != "view":
            return None
        if isinstance(node.func, ast.Attribute) and not path.startswith(("aten.", "torch.")):
            viewed = self.read(node.func.value)
        else:
            viewed = self.read(given[0][1]) if given else None
        expr = self._code(node)
        # A comment inside would swallow the rest of the probe's line.
        return (
            PythonValue(expr, viewed.base, "view")
            if viewed and viewed.base and "#" not in expr
            else None
        )


def _elements(value: ast.expr) -> tuple[ast.expr, ...]:
    """The members of a list or tuple display, or else the value itself."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return tuple(
            inner
            for member in value.elts
            for inner in _elements(member.value if isinstance(member, ast.Starred) else member)
        )
    return (value,)
