"""Functions of a loaded wrapper: the code that they run while they are probed, from its text.

The lines of probes are those of `instrument`. The functions have the names of their module in a
copy, to which those of the recorders are added. So no name is added to the module, and a thread
that still runs them after the probes were removed finds its recorder. Lines keep their numbers in
the file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CellType, CodeType, FunctionType
from typing import Any

from rewriter.core import edit, garbage
from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.execution.hook.startup.sitecustomize import placed
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.types import Plan

_CALLED = "rewriter.execution.loaded called"


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
    (header,) = (insertion for insertion in plan.insertions if insertion.origin == HEADER)
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
    return _unused(code) in _nested(module)


def _unused(code: CodeType) -> CodeType:
    """A copy without what Python 3.11 and later learned while it ran, and compares as well."""
    constants = (_unused(x) if isinstance(x, CodeType) else x for x in code.co_consts)
    return code.replace(co_consts=tuple(constants))


def _nested(code: CodeType) -> Iterator[CodeType]:
    for co_const in code.co_consts:
        if isinstance(co_const, CodeType):
            yield co_const
            yield from _nested(co_const)


def probed_functions(
    source: Source, path: str, names: dict[str, Any], probes: Sequence[tuple[Plan, str, Any]]
) -> dict[str, FunctionType]:
    """The functions with probes, by qualified name; `names` are those of the module. Each plan
    comes with the name that its lines use for the recorder, and with the recorder."""
    recorders = {f"rewriter_loaded_{n}": recorder for n, (_, _, recorder) in enumerate(probes)}
    inserted = [
        replace(
            insertion, text=insertion.text.replace(f"{variable}.".encode(), f"{name}.".encode())
        )
        for name, (plan, variable, _) in zip(recorders, probes, strict=True)
        for insertion in plan.insertions
        if insertion.origin != HEADER
    ]
    text = edit.apply(source.data, inserted).decode()
    lines = [number for number, _ in edit.line_origins(source, inserted)]
    own = names | recorders
    with garbage.paused():
        body = placed(text, lines, path).body
        made: list[ast.stmt] = [
            statement for statement in body if isinstance(statement, ast.FunctionDef | ast.ClassDef)
        ]
        exec(compile(ast.Module(made, []), path, "exec", dont_inherit=True), own)
    functions = functions_of(own)
    own.update(names)  # they call each other by the functions that are loaded
    return {x: y for x, y in functions.items() if recorders.keys() & {*y.__code__.co_names}}


def functions_of(namespace: dict[str, Any]) -> dict[str, FunctionType]:
    """The functions that a module defines, and those of its classes, by qualified name."""
    members = list(namespace.values())
    for member in list(members):
        if isinstance(member, type):
            members += vars(member).values()
    return {
        member.__qualname__: member
        for member in members
        if type(member) is FunctionType and member.__globals__ is namespace
    }


def like(
    function: FunctionType, code: CodeType, closure: tuple[CellType, ...] | None = None
) -> FunctionType:
    """A function with the defaults of another one, but its own code."""
    cells = closure or function.__closure__
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return renamed(made)


def renamed(function: FunctionType) -> FunctionType:
    """The same function, which a search for entries of wrappers does not find any more."""
    function.__qualname__ = f"{function.__qualname__} in rewriter.execution.loaded"
    return function


def handing_over(code: CodeType, called: Callable[..., Any]) -> CodeType:
    """Code that can replace `code` in its function, and passes all arguments to `called`."""
    cells = "; ".join(f"{name} = None" for name in code.co_freevars) or "pass"
    uses = "; ".join(code.co_freevars) or "pass"
    text = (
        f"def outside():\n    {cells}\n    def inside(*args, **kwargs):\n        {uses}\n"
        f"        return {_CALLED!r}.__call__(*args, **kwargs)\n    return inside\n"
    )
    tree = placed(text, [1] * text.count("\n"))
    module = compile(tree, code.co_filename, "exec", dont_inherit=True)
    (inside,) = (nested for nested in _nested(module) if nested.co_name == "inside")
    constants = tuple(called if co_const == _CALLED else co_const for co_const in inside.co_consts)
    names = {"co_name": code.co_name, "co_firstlineno": code.co_firstlineno}
    if hasattr(code, "co_qualname"):  # Python 3.11
        names["co_qualname"] = code.co_qualname
    return inside.replace(co_consts=constants, **names)  # type: ignore[arg-type]
