"""Finds what other statements of a Python wrapper than launches may write.

Inductor writes hardly any such statement. A statement counts as a write unless it is known to write
nothing: its buffers are measured before it (`rewriter/instrumentation/together.py`).
"""

from __future__ import annotations

import ast

from rewriter.core.source import Source
from rewriter.locate.flow import Flow
from rewriter.locate.python.nodes import names, subscripted
from rewriter.locate.types import OtherUse

# Known calls that write nothing, and whose results are known to show the memory of known variables.
_HARMLESS = frozenset({"allocation", "view", "copy", "check", "scalar"})


class OtherUses:
    """Collects in `found` what the statements of a scope may write. Needs them in file order, each
    before it is added to the `Flow` of variables."""

    def __init__(self, source: Source) -> None:
        self.found: list[OtherUse] = []
        self._source = source

    def call(self, statement: ast.stmt, call: ast.Call, effect: str, flow: Flow) -> None:
        """Read a call that is not a launch; `effect` is its group in `known_calls.toml`."""
        if effect == "scope":
            self.found.append(OtherUse(self._start(statement), "", lasts=True))
        elif effect not in _HARMLESS:
            self.may_write(statement, call, flow, lasts=effect != "write")

    def read(self, statement: ast.stmt, flow: Flow, *, has_launches: bool) -> None:
        """Read what a statement may write other than by the calls in it."""
        if isinstance(statement, (ast.Delete, ast.Return, ast.Pass)):
            return
        if isinstance(statement, ast.Expr) and isinstance(
            statement.value, (ast.Call, ast.Constant)
        ):
            return
        if not isinstance(statement, ast.Assign) or not all(map(_is_bound, statement.targets)):
            self.may_write(statement, statement, flow)
            return
        value = statement.value
        if has_launches or isinstance(value, (ast.Call, ast.Name, ast.Constant)):
            return
        if isinstance(value, ast.Subscript) and flow.get(subscripted(value)).type != "tensor":
            return  # an element of a call's result, and not a part of a tensor
        is_sign = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.UAdd)
        if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare)) and not is_sign:
            return  # the result is new
        self.may_write(statement, value, flow)

    def may_write(
        self, statement: ast.stmt, inside: ast.AST, flow: Flow, *, lasts: bool = True
    ) -> None:
        """Each buffer named in a statement may be written; if it `lasts`, also later."""
        start = self._start(statement)
        for name in names(inside):
            for buffer in {name, flow.get(name).root}:
                self.found.append(OtherUse(start, buffer, lasts))

    def _start(self, statement: ast.stmt) -> int:
        return self._source.line_start(statement.lineno)


def _is_bound(target: ast.expr) -> bool:
    """Whether an assignment only binds names, and changes no object."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(isinstance(part, ast.Name) for part in target.elts)
    return isinstance(target, ast.Name)
