"""Finds what other statements of a Python wrapper than launches may write.

Inductor writes hardly any such statement. A statement counts as a write unless it is known to write
nothing: its buffers are measured before it (`rewriter/instrumentation/together.py`).
"""

from __future__ import annotations

import libcst as cst

from rewriter.locate.flow import Flow
from rewriter.locate.python.statements import Statement, elements, subscripted
from rewriter.locate.types import OtherUse

# Known calls that write nothing, and whose results are known to show the memory of known variables.
_HARMLESS = frozenset({"allocation", "view", "copy", "check", "scalar"})


class OtherUses:
    """Collects in `found` what the statements of a scope may write. Needs them in file order, each
    before it is added to the `Flow` of variables."""

    def __init__(self) -> None:
        self.found: list[OtherUse] = []

    def call(self, statement: Statement, call: cst.Call, effect: str, flow: Flow) -> None:
        """Read a call that is not a launch; `effect` is its group in `known_calls.toml`."""
        if effect == "scope":
            self.found.append(OtherUse(statement.line.start, "", lasts=True))
        elif effect not in _HARMLESS:
            self.may_write(statement, call, flow, lasts=effect != "write")

    def read(self, statement: Statement, flow: Flow, *, has_launches: bool) -> None:
        """Read what a statement may write other than by the calls in it."""
        match statement.node:
            case cst.Del() | cst.Return() | cst.Pass():
                return
            case cst.Expr(value=cst.Call() | cst.BaseString() | cst.BaseNumber() | cst.Ellipsis()):
                return
            case cst.Assign(targets=targets, value=value) if all(map(_is_bound, targets)):
                if not has_launches and not _is_new(statement, value, flow):
                    self.may_write(statement, value, flow)
                return
        self.may_write(statement, statement.node, flow)

    def may_write(
        self, statement: Statement, inside: cst.CSTNode, flow: Flow, *, lasts: bool = True
    ) -> None:
        """Each buffer named in a statement may be written; if it `lasts`, also later."""
        for name in statement.names(inside):
            for buffer in {name, flow.get(name).root}:
                self.found.append(OtherUse(statement.line.start, buffer, lasts))


def _is_bound(target: cst.AssignTarget) -> bool:
    """Whether an assignment only binds names, and changes no object."""
    return all(isinstance(part, cst.Name) for part in elements(target.target))


def _is_new(statement: Statement, value: cst.BaseExpression, flow: Flow) -> bool:
    """Whether a value shows no memory that the data flow does not know about."""
    match value:
        case cst.Call() | cst.Name() | cst.BaseString() | cst.BaseNumber() | cst.Ellipsis():
            return True
        case cst.Subscript():  # an element of a call's result, and not a part of a tensor
            return flow.get(subscripted(statement, value)).type != "tensor"
        case cst.UnaryOperation(operator=operator):
            return not isinstance(operator, cst.Plus)
    return isinstance(value, (cst.BinaryOperation, cst.Comparison))
