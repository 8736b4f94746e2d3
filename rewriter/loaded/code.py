"""Compiles the functions of a wrapper with probes in them, from the wrapper's text.

The lines of probes are those of `instrument`. The recorders are constants of the code. So no name
is added to the module, and a thread that still runs the code after the probes were removed finds
its recorder. Lines keep their numbers in the file.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from rewriter.core import edit, garbage
from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.hook.startup.sitecustomize import placed
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
    constants = {f"rewriter_loaded_{n}": recorder for n, (_, _, recorder) in enumerate(probes)}
    inserted = [
        replace(one, text=one.text.replace(f"{variable}.".encode(), f"{name}.".encode()))
        for name, (plan, variable, _) in zip(constants, probes, strict=True)
        for one in plan.insertions
        if one.origin != HEADER
    ]
    text = edit.apply(source.data, inserted).decode()
    lines = [number for number, _ in edit.line_origins(source, inserted)]
    with garbage.paused():
        tree = _Recorders(constants).visit(placed(text, lines, path))
        codes = _compiled(tree, path)
    return {name: _with_constants(code, constants) for name, code in codes.items()}


class _Recorders(ast.NodeTransformer):
    """Replaces the names of recorders by strings, which stand for them until the code is
    compiled."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(node.id), node) if node.id in self._names else node


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
