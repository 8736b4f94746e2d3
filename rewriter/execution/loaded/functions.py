"""Functions of a loaded module: finds them, copies them, and makes the code that they run while
they are probed."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from rewriter.execution.hook.startup.sitecustomize import placed

_CALLED = "rewriter.execution.loaded called"


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
    """Code that can replace `code` in its function, and passes all arguments of the function to
    `called`."""
    cells = "; ".join(f"{name} = None" for name in code.co_freevars) or "pass"
    uses = "; ".join(code.co_freevars) or "pass"
    text = (
        f"def outside():\n    {cells}\n    def inside(*args, **kwargs):\n        {uses}\n"
        f"        return {_CALLED!r}.__call__(*args, **kwargs)\n    return inside\n"
    )
    tree = placed(text, [1] * text.count("\n"))
    module = compile(tree, code.co_filename, "exec", dont_inherit=True)
    inside = _nested(_nested(module, "outside"), "inside")
    constants = tuple(called if co_const == _CALLED else co_const for co_const in inside.co_consts)
    names = {"co_name": code.co_name, "co_firstlineno": code.co_firstlineno}
    if hasattr(code, "co_qualname"):  # Python 3.11
        names["co_qualname"] = code.co_qualname
    return inside.replace(co_consts=constants, **names)  # type: ignore[arg-type]


def _nested(code: CodeType, name: str) -> CodeType:
    return next(x for x in code.co_consts if isinstance(x, CodeType) and x.co_name == name)
