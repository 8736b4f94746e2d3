"""Compiles the functions of a wrapper with probes in them, from the wrapper's text.

The lines of probes are those of `instrument`. The recorders are constants of the code. So no name
is added to the module, and a thread that still runs the code after the probes were removed finds
its recorder. Lines keep their numbers in the file.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from rewriter.core import edit, garbage
from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.types import Plan


@dataclass(frozen=True)
class ProbeTable:
    """The arguments for the recorder in the header of an instrumented wrapper. The lines of probes
    use the name `variable` for the recorder."""

    variable: str
    options: Json
    launches: list[Json]
    inputs: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to record."""
        return not (self.launches or self.inputs)


def read_table(plan: Plan) -> ProbeTable:
    """Read the table from the header that a plan adds to a Python wrapper."""
    (header,) = (one for one in plan.insertions if one.origin == HEADER)
    statement = ast.parse(header.text).body[-1]
    assert isinstance(statement, ast.Assign)
    assert isinstance(statement.value, ast.Call)
    (target,) = statement.targets
    assert isinstance(target, ast.Name)
    options, launches, *inputs = map(ast.literal_eval, statement.value.args)
    return ProbeTable(target.id, options, launches, tuple(inputs[0]) if inputs else ())


def plain_codes(source: Source, path: str) -> dict[str, CodeType]:
    """The code of each function of a wrapper by its qualified name, as compiled by loading it."""
    with garbage.paused():
        return _compiled(ast.parse(source.data), path)


def probed_codes(
    source: Source, path: str, probes: Sequence[tuple[Plan, str, Any]]
) -> dict[str, CodeType]:
    """The same with probes. Each plan comes with the name that its lines use for the recorder, and
    with the object to use in place of that name."""
    text, lines = _merged(source, [plan for plan, _, _ in probes])
    constants = {f"rewriter.loaded {number}": one[2] for number, one in enumerate(probes)}
    with garbage.paused():
        tree = ast.parse(text)
        _Placer(lines, [variable for _, variable, _ in probes], list(constants)).visit(tree)
        codes = _compiled(tree, path)
    return {name: _with_constants(code, constants) for name, code in codes.items()}


@dataclass(frozen=True)
class _Line:
    """A line of the merged text: the number of its own line in the file, or of the next one, and
    the plan that inserted it."""

    number: int
    plan: int | None = None


def _merged(source: Source, plans: Sequence[Plan]) -> tuple[bytes, list[_Line]]:
    """A source with the lines of all plans except their headers, and the origin of each line."""
    own = {id(x): (n, x) for n, plan in enumerate(plans) for x in plan.insertions
           if x.origin != HEADER}  # fmt: skip
    inserted = [one for _, one in own.values()]
    lines = [
        _Line(number, None if one is None else own[id(one)][0])
        for number, one in edit.line_origins(source, inserted)
    ]
    return edit.apply(source.data, inserted), lines


class _Placer(ast.NodeVisitor):
    """Gives each node its line in the file, and replaces the name of a recorder by a string, which
    stands for the recorder until the code is compiled."""

    def __init__(self, lines: Sequence[_Line], names: Sequence[str], texts: Sequence[str]) -> None:
        self._lines = lines
        self._names = names
        self._texts = texts

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            plan = self._lines[node.value.lineno - 1].plan
            if plan is not None and node.value.id == self._names[plan]:
                text = ast.Constant(self._texts[plan])
                node.value = ast.copy_location(text, node.value)
        self.generic_visit(node)
        if isinstance(node, ast.stmt | ast.expr | ast.keyword | ast.arg | ast.excepthandler):
            node.lineno = self._lines[node.lineno - 1].number
            if node.end_lineno is not None:
                node.end_lineno = self._lines[node.end_lineno - 1].number


def _compiled(tree: ast.Module, path: str) -> dict[str, CodeType]:
    """The code of the functions of a module, and of those in its classes, by qualified name."""
    # The whole module: imports in it affect how names are called.
    code = compile(tree, path, "exec", dont_inherit=True)
    return dict(_functions(code, ""))


def _functions(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            name = f"{prefix}{one.co_name}"
            is_function = one.co_flags & inspect.CO_NEWLOCALS  # and not the body of a class
            if is_function:
                yield name, one
            yield from _functions(one, f"{name}.<locals>." if is_function else f"{name}.")


def _with_constants(code: CodeType, constants: Mapping[str, object]) -> CodeType:
    """A code object with other constants in place of strings."""

    def exchanged(one: object) -> object:
        if isinstance(one, CodeType):
            return _with_constants(one, constants)
        return constants.get(one, one) if isinstance(one, str) else one

    return code.replace(co_consts=tuple(map(exchanged, code.co_consts)))


# Not the code objects themselves: Python 3.11 also compares what they learned while running.
_FIELDS = (
    *("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_firstlineno"),
)


def is_same(one: CodeType | None, other: CodeType) -> bool:
    """Whether two code objects were compiled from the same text at the same line."""
    if one is None or any(getattr(one, name) != getattr(other, name) for name in _FIELDS):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else _is_equal(a, b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _is_equal(a: object, b: object) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)  # for NaN, and 0 of either sign
