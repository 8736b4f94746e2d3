"""Finds what other statements of a Python wrapper than launches may write.

Inductor writes hardly any such statement. A statement counts as a write unless it is known to write
nothing: its buffers are measured before it (`rewriter/instrumentation/together.py`).
"""

from __future__ import annotations

from functools import lru_cache

import libcst as cst

from rewriter.locate.flow import Flow
from rewriter.locate.python.statements import Statement, elements, subscripted, walk
from rewriter.locate.types import OtherUse

# Known calls that write nothing, and whose results are known to show the memory of known variables.
_HARMLESS = frozenset({"allocation", "view", "copy", "check", "scalar"})

_CONSTANTS = (cst.BaseString, cst.BaseNumber, cst.Ellipsis)
_NEW = (cst.Call, cst.Name, cst.BinaryOperation, cst.Comparison, *_CONSTANTS)


class OtherUses:
    """Collects in `found` what the statements of a scope may write. Needs them in file order, each
    before it is added to the `Flow` of variables."""

    def __init__(self) -> None:
        self.found: list[OtherUse] = []

    def call(self, statement: Statement, call: cst.Call, effect: str, flow: Flow) -> None:
        """Read a call that is not a launch; `effect` is its group in `known_calls.toml`, or `scope`
        for a function of the wrapper that launches."""
        if effect == "scope":
            self.found.append(OtherUse(statement.line.start, "", lasts=True))
        elif effect not in _HARMLESS:
            self.may_write(statement, call, flow, lasts=effect != "write")

    def read(self, statement: Statement, flow: Flow, *, has_launches: bool) -> None:
        """Read what a statement may write other than by the calls in it."""
        node = statement.node
        if _writes_nothing(node):
            return
        if isinstance(node, cst.Assign) and _binds_names(node):
            value = node.value
            base = subscripted(statement, value)
            # An element of a call's result, and not a part of a tensor.
            is_element = bool(base) and flow.get(base).type != "tensor"
            if not has_launches and not is_element:
                self.may_write(statement, value, flow)
        else:
            self.may_write(statement, node, flow)

    def named_in_passing(self, statement: Statement, inside: cst.CSTNode, flow: Flow) -> None:
        """Read a part of a statement, which may have an assignment in an expression."""
        if _names_in_passing(inside):
            self.may_write(statement, statement.node, flow)

    def may_write(
        self, statement: Statement, inside: cst.CSTNode, flow: Flow, *, lasts: bool = True
    ) -> None:
        """Each buffer named in a statement may be written; if it `lasts`, also later."""
        for name in statement.names(inside):
            for buffer in {name, flow.get(name).root}:
                self.found.append(OtherUse(statement.line.start, buffer, lasts))


@lru_cache(maxsize=10_000)
def _writes_nothing(node: cst.CSTNode) -> bool:
    """Whether a statement writes nothing, whatever its variables are."""
    match node:
        case cst.Assign(value=cst.UnaryOperation(operator=operator)) if _binds_names(node):
            return not isinstance(operator, cst.Plus)
        case cst.Assign(value=value) if _binds_names(node):
            return isinstance(value, _NEW)
        case cst.Expr(value=value):
            return isinstance(value, (cst.Call, *_CONSTANTS))
    return isinstance(node, (cst.Del, cst.Return, cst.Pass))


@lru_cache(maxsize=10_000)
def _names_in_passing(node: cst.CSTNode) -> bool:
    return any(isinstance(part, cst.NamedExpr) for part in walk(node))


def _binds_names(node: cst.Assign) -> bool:
    """Whether an assignment only binds names, and changes no object."""
    parts = (part for target in node.targets for part in elements(target.target))
    return all(isinstance(part, cst.Name) for part in parts)
