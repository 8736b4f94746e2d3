"""Finds where a scope takes elements from the results of calls."""

from __future__ import annotations

import ast
import bisect
import itertools

from rewriter.locate.python.nodes import names, subscripted


class Elements:
    """Where a scope takes elements from results: `buf8 = buf7[0]` after `buf7 = op(…)`."""

    def __init__(self) -> None:
        self._events: dict[str, list[tuple[int, str, str]]] = {}
        self._ordered: set[str] = set()

    def read(self, node: ast.AST) -> None:
        """Read one statement of the scope."""
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            self._add(target.id, node.lineno, "end", "")
            if isinstance(node.value, ast.Subscript) and (base := subscripted(node.value)):
                self._add(base, node.lineno, target.id, ast.unparse(node.value))
        elif isinstance(node, ast.Delete):
            for name in names(node):
                self._add(name, node.lineno, "end", "")

    def _add(self, base: str, line: int, target: str, expr: str) -> None:
        self._events.setdefault(base, []).append((line, target, expr))

    def of(self, name: str, last_line: int) -> tuple[tuple[str, str], ...]:
        """`(variable, expression)` per element of the result that a statement binds to `name`.

        `last_line` is that of the statement. All statements of the scope have to be read before.
        """
        events = self._events.get(name, [])
        if name not in self._ordered:
            events.sort()
            self._ordered.add(name)
        later = itertools.islice(events, bisect.bisect_left(events, (last_line + 1,)), None)
        return tuple(
            (target, expr)
            for _, target, expr in itertools.takewhile(lambda e: e[1] != "end", later)
        )
