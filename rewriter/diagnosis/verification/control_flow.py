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


def results(node: ast.expr, literals: Literals, run: _Run) -> Sequence[Any]:
    """What such a node returns; `literals` has the values of its arguments. Raises `UncheckedError`
    if rounding decides which way it goes."""
    match node:
        case ast.Call(ast.Attribute(attr="cond"), [condition, then, otherwise, given]):
            taken = then if _is_true(literals.of(condition)) else otherwise
            return run(ast.unparse(taken), literals.of(given))
        case ast.Call(ast.Attribute(attr="invoke_subgraph"), [graph, _, *given]):
            return run(ast.unparse(graph), [literals.of(x) for x in given])
        case ast.Call(ast.Attribute(attr="while_loop"), [condition, body, first, rest]):
            carried = literals.of(first)
            for _ in range(_MOST):
                values = [*carried, *literals.of(rest)]
                if not _is_true(run(ast.unparse(condition), values)[0]):
                    return list(carried)
                carried = run(ast.unparse(body), values)
            raise UncheckedError(f"a loop has more than {_MOST} turns")
    raise UncheckedError(f"{ast.unparse(node)} cannot be evaluated")


def _is_true(condition: Any) -> bool:
    if isinstance(condition, Bounded):
        if bool(condition.bound().any()):
            raise UncheckedError("rounding decides which way it goes")
        return bool(condition.value)
    return bool(condition)
