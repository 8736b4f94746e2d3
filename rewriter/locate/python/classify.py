"""Classifies a call in a Python wrapper: a launch, a known call, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from rewriter.locate.python.forms import Template
from rewriter.locate.python.grammar import FUNCTION, JIT, PythonGrammar, PythonShape
from rewriter.locate.python.kernel_functions import is_jit
from rewriter.locate.python.outline import PythonOutline
from rewriter.locate.python.statements import children, head, names, path, template

_VIEWS = frozenset({"reinterpret_tensor", "aten", "torch"})


class CallClassifier:
    """Classifies the calls of one wrapper; calls with the same text are classified once."""

    def __init__(self, outline: PythonOutline, grammar: PythonGrammar) -> None:
        self._outline = outline
        self.grammar = grammar
        self._functions = {scope.function.name for scope in outline.scopes}
        self._known: dict[tuple[str, frozenset[str]], PythonShape | str | None] = {}

    def classify(self, callee: str, call: cst.Call) -> PythonShape | str | None:
        """A launch shape, the group of a known call, or `None`. `callee` is its text."""
        key = callee, _keywords(call)
        if key not in self._known:
            self._known[key] = (
                self._shape(*key)
                or self.grammar.effect(callee)
                or ("scope" if callee in self._functions else None)
            )
        return self._known[key]

    def _shape(self, callee: str, given: frozenset[str]) -> PythonShape | None:
        """The first launch shape that a call matches."""
        definition = self._outline.definitions.get(head(callee))
        factory = definition.factory if definition else ""
        if (function := self._outline.functions.get(head(callee))) is not None:
            if is_jit(function):
                factory = JIT
            elif callee in self._outline.functions and self.grammar.effect(callee) is None:
                factory = FUNCTION
        for shape in self.grammar.shapes:
            if any(pattern.fullmatch(callee) for pattern in shape.excluded):
                continue
            for match in shape.patterns:
                texts = definition.texts if match.source and definition else ()
                if (
                    match.callee.fullmatch(callee)
                    and match.defined_by in ("", factory)
                    and (not match.source or any(match.source in text for text in texts))
                    and (not match.keyword or match.keyword in given)
                ):
                    return shape
        return None


@lru_cache(maxsize=10_000)
def _keywords(call: cst.Call) -> frozenset[str]:
    return frozenset(arg.keyword.value for arg in call.args if arg.keyword)


@lru_cache(maxsize=10_000)
def uses(call: cst.Call, grammar: PythonGrammar) -> tuple[tuple[Template, Template | None], ...]:
    """The variables whose memory a call may write, each with the view of it that is used, if any.
    An argument that is a copy, such as `buf5.clone()`, has memory of its own."""
    return tuple(_used(call, grammar))


def _used(node: cst.CSTNode, grammar: PythonGrammar) -> Iterator[tuple[Template, Template | None]]:
    callee = path(node.func).text if isinstance(node, cst.Call) else ""
    # `contiguous` copies nothing if the tensor is contiguous.
    if grammar.effect(callee) == "copy" and not callee.endswith(".contiguous"):
        return
    if isinstance(node, cst.Call) and grammar.effect(callee) == "view":
        if (base := view_base(node)) is not None:
            yield base, template(node)
    elif isinstance(node, cst.Name):
        yield template(node), None
    else:
        for child in children(node):
            yield from _used(child, grammar)


def view_base(call: cst.Call) -> Template | None:
    """The variable that a call of a view function shows."""
    match call.func:
        case cst.Attribute(value=cst.Name(value=receiver)) if receiver not in _VIEWS:
            return template(call.func.value)
    given = names(call.args[0].value) if call.args else ()
    return next((name for name in given if name.text not in _VIEWS), None)
