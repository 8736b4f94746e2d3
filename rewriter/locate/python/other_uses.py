"""What the statements of a Python wrapper that are no launches may write.

Inductor writes hardly any such statement. One that is not known to write nothing counts as a write:
the buffers in it are measured before it (`rewriter/instrumentation/together.py`).
"""

from __future__ import annotations

import ast

from rewriter.core.source import Source
from rewriter.locate.flow import Flow
from rewriter.locate.python.nodes import names, subscripted
from rewriter.locate.types import OtherUse

# Known calls that write nothing, and of whose results it is known whose memory they show.
_HARMLESS = frozenset({"allocation", "view", "copy", "check", "scalar"})


class OtherUses:
    """Collects in `found` what the statements of a scope may write. They have to come in the order
    of the file, and each one before it is added to the `Flow` of variables."""

    def __init__(self, source: Source) -> None:
        self.found: list[OtherUse] = []
        self._source = source

    def call(self, statement: ast.stmt, call: ast.Call, effect: str, flow: Flow) -> None:
        """A call in a statement that is no launch, and what `known_calls.toml` says of it."""
        if effect == "scope":
            self.found.append(OtherUse(self._start(statement), "", lasts=True))
        elif effect not in _HARMLESS:
            self.may_write(statement, call, flow, lasts=effect != "write")

    def read(self, statement: ast.stmt, flow: Flow, *, has_launches: bool) -> None:
        """What a statement may write otherwise than by the calls in it."""
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
            return  # an element of what a call returned, and no part of a tensor
        is_sign = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.UAdd)
        if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare)) and not is_sign:
            return  # the result is new
        self.may_write(statement, value, flow)

    def may_write(
        self, statement: ast.stmt, inside: ast.AST, flow: Flow, *, lasts: bool = True
    ) -> None:
        """Each buffer that is named inside of a statement may be written; if it `lasts`, also
        later."""
        start = self._start(statement)
        for name in names(inside):
            for buffer in {name, flow.get(name).root}:
                self.found.append(OtherUse(start, buffer, lasts))

    def _start(self, statement: ast.stmt) -> int:
        return self._source.line_start(statement.lineno)


def _is_bound(target: ast.expr) -> bool:
    """Whether an assignment gives a value to names, and changes nothing."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(isinstance(part, ast.Name) for part in target.elts)
    return isinstance(target, ast.Name)
