"""Classifies a call in a Python wrapper: a launch, a known call, or neither."""

from __future__ import annotations

import ast

from rewriter.locate.python.grammar import FUNCTION, PythonGrammar, PythonShape
from rewriter.locate.python.nodes import names
from rewriter.locate.python.outline import PythonOutline, callee, head

_VIEWS = frozenset({"reinterpret_tensor", "aten", "torch"})


class CallClassifier:
    """Classifies the calls of one wrapper; calls with the same text are classified once."""

    def __init__(self, outline: PythonOutline, grammar: PythonGrammar) -> None:
        self._outline = outline
        self._grammar = grammar
        self._functions = {scope.function.name for scope in outline.scopes}
        self._known: dict[tuple[str, frozenset[str | None]], PythonShape | str | None] = {}

    def classify(self, path: str, call: ast.Call) -> PythonShape | str | None:
        """A launch shape, the group of a known call, or `None`. `path` is the callee's text."""
        key = path, frozenset(keyword.arg for keyword in call.keywords)
        if key not in self._known:
            self._known[key] = (
                match_shape(path, call, self._outline, self._grammar)
                or self._grammar.effect(path)
                or ("scope" if path in self._functions else None)
            )
        return self._known[key]

    def is_view(self, call: ast.Call) -> bool:
        """Whether a call returns a tensor over the memory of another one."""
        return self._grammar.effect(callee(call)) == "view"


def match_shape(
    path: str, call: ast.Call, outline: PythonOutline, grammar: PythonGrammar
) -> PythonShape | None:
    """The first launch shape that the call matches."""
    definition = outline.definitions.get(head(path))
    factory = definition.factory if definition else ""
    if path in outline.functions and grammar.effect(path) is None:
        factory = FUNCTION
    for shape in grammar.shapes:
        if any(pattern.fullmatch(path) for pattern in shape.excluded):
            continue
        for match in shape.patterns:
            if not match.callee.fullmatch(path):
                continue
            if match.defined_by and factory != match.defined_by:
                continue
            if match.source and not any(match.source in text for text in definition.texts):  # type: ignore[union-attr]
                continue
            if match.keyword and all(keyword.arg != match.keyword for keyword in call.keywords):
                continue
            return shape
    return None


def view_base(call: ast.Call) -> str:
    """The variable that a call of a view function shows."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(receiver, ast.Name) and receiver.id not in _VIEWS:
        return receiver.id
    return next((name for arg in call.args[:1] for name in names(arg) if name not in _VIEWS), "")
