"""Compiles the functions of a wrapper with probes in them, from the wrapper's text.

The lines of probes are those of `instrument`. The functions have the names of their module in a
copy, to which those of the recorders are added. So no name is added to the module, and a thread
that still runs them after the probes were removed finds its recorder. Lines keep their numbers in
the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from rewriter.core import edit, garbage
from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.hook.startup.sitecustomize import placed
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.types import Plan
from rewriter.loaded.functions import functions_of


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


def is_of(source: Source, path: str, code: CodeType) -> bool:
    """Whether a function's code was compiled from the text of a wrapper."""
    with garbage.paused():
        # The whole module: imports in it affect how names are called.
        module = compile(source.data, path, "exec", dont_inherit=True)
    return any(is_same(one, code) for one in _nested(module))


def _nested(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _nested(one)


def probed_functions(
    source: Source, path: str, names: dict[str, Any], probes: Sequence[tuple[Plan, str, Any]]
) -> dict[str, FunctionType]:
    """The functions with probes, by qualified name; `names` are those of the module. Each plan
    comes with the name that its lines use for the recorder, and with the recorder."""
    recorders = {f"rewriter_loaded_{n}": recorder for n, (_, _, recorder) in enumerate(probes)}
    inserted = [
        replace(one, text=one.text.replace(f"{variable}.".encode(), f"{name}.".encode()))
        for name, (plan, variable, _) in zip(recorders, probes, strict=True)
        for one in plan.insertions
        if one.origin != HEADER
    ]
    text = edit.apply(source.data, inserted).decode()
    lines = [number for number, _ in edit.line_origins(source, inserted)]
    own = names | recorders
    with garbage.paused():
        body = placed(text, lines, path).body
        made: list[ast.stmt] = [
            one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)
        ]
        exec(compile(ast.Module(made, []), path, "exec", dont_inherit=True), own)
    functions = functions_of(own)
    own.update(names)  # they call each other by the functions that are loaded
    return {x: y for x, y in functions.items() if recorders.keys() & {*y.__code__.co_names}}


# Not the code objects themselves: Python 3.11 also compares what they learned while running.
_FIELDS = (
    *("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_firstlineno"),
)


def is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects were compiled from the same text at the same line."""
    if any(getattr(one, name) != getattr(other, name) for name in _FIELDS):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else _is_equal(a, b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _is_equal(a: object, b: object) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)  # for NaN, and 0 of either sign
