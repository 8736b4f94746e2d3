"""Finds where a scope takes elements from the results of calls."""

from __future__ import annotations

import bisect
import itertools

import libcst as cst

from rewriter.locate.python.statements import Statement, subscripted


class Elements:
    """Where a scope takes elements from results: `buf8 = buf7[0]` after `buf7 = op(…)`."""

    def __init__(self) -> None:
        self._events: dict[str, list[tuple[int, str, str]]] = {}
        self._ordered: set[str] = set()

    def read(self, statement: Statement) -> None:
        """Read one statement of the scope."""
        line = statement.line.number
        match statement.node:
            case cst.Assign(targets=[cst.AssignTarget(cst.Name() as target), *_], value=value):
                name = statement.name(target)
                self._add(name, line, "end", "")
                if isinstance(value, cst.Subscript) and (base := subscripted(statement, value)):
                    self._add(base, line, name, statement.code(value))
            case cst.Del(target=target):
                for name in statement.names(target):
                    self._add(name, line, "end", "")

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
