"""Evaluates the nodes of a graph that run graphs inside of it: conditions, loops, and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError
from rewriter.diagnosis.verification.graph_types import Literals

PREFIXES = ("higher_order.cond", "higher_order.while_loop", "higher_order.invoke_subgraph", "self.")
_MOST = 1_000  # turns of a loop
# Runs a graph inside of the graph, by its name, on values: what it returns.
_Run = Callable[[str, Sequence[Any]], Sequence[Any]]


def results(text: str, literals: Literals, run: _Run) -> Sequence[Any]:
    """What the call of such a node returns; `literals` has the values of its arguments. Raises
    `UncheckedError` if rounding decides which way it goes."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call):
        raise UncheckedError(f"{text} is a graph inside of the graph")
    operator = ast.unparse(call.func)
    if operator.endswith(".cond"):
        condition, *branches, given = call.args
        taken = branches[0 if _is_true(literals.of(condition)) else 1]
        return run(ast.unparse(taken), literals.of(given))
    if operator.endswith(".invoke_subgraph"):
        return run(ast.unparse(call.args[0]), [literals.of(x) for x in call.args[2:]])
    before, body = map(ast.unparse, call.args[:2])
    carried, rest = (list(literals.of(x)) for x in call.args[2:4])
    for _ in range(_MOST):
        if not _is_true(run(before, [*carried, *rest])[0]):
            return carried
        carried = list(run(body, [*carried, *rest]))
    raise UncheckedError(f"a loop has more than {_MOST} turns")


def _is_true(condition: Any) -> bool:
    if isinstance(condition, Bounded):
        if bool(condition.bound().any()):
            raise UncheckedError("rounding decides which way it goes")
        return bool(condition.value)
    return bool(condition)
