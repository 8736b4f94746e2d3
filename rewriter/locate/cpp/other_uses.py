"""Finds what other statements of a C++ wrapper than launches may write.

Inductor writes hardly any such statement. A statement counts as a write unless it is known to write
nothing: its buffers are measured before it (`rewriter/instrumentation/together.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import tree_sitter

from rewriter.locate.cpp.name_tracker import ClassifiedCall, NameChange, NameTracker
from rewriter.locate.cpp.outline import CppOutline
from rewriter.locate.flow import Flow
from rewriter.locate.types import OtherUse

# Known calls that write nothing, and whose results are known to show the memory of known variables.
_HARMLESS = frozenset({"allocation", "view", "copy", "check", "scalar", "cast", "owner"})
# Calls that only wrap other calls, or release what they are called on (`NameTracker`).
_AROUND = re.compile(r"AOTI_TORCH_ERROR_CODE_CHECK$|RECORD_FUNCTION$|\[&\]|.*\.reset$")
_BLOCKS = frozenset(
    {"compound_statement", "else_clause", "if_statement", "while_statement", "for_statement"}
    | {"do_statement", "for_range_loop"}
)
# Statements and parts of blocks that write no memory except by the calls in them.
_READS = frozenset(
    {"comment", "declaration", "return_statement", "throw_statement", "condition_clause"}
    | {"parenthesized_expression", "alias_declaration", "using_declaration", "type_definition"}
)
_HANDLE = "_handle"
_OUTPUTS = re.compile(rb"output_handles\[\d+\]")  # what is returned is not written by that


class OtherUses:
    """Collects in `found` what the statements of a body may write. Needs them in file order."""

    def __init__(self, outline: CppOutline, names: NameTracker) -> None:
        self.found: list[OtherUse] = []
        self._outline = outline
        self._names = names

    def nested(
        self, statement: tree_sitter.Node, calls: Iterable[ClassifiedCall], flow: Flow
    ) -> None:
        """Read a statement with blocks that have no launches and change no names."""
        self.calls(statement, calls, flow)
        for child in statement.named_children:
            if child.type in _BLOCKS:
                self.nested(child, (), flow)
            else:
                self.read(child, (), flow)

    def read(
        self, statement: tree_sitter.Node, calls: Iterable[ClassifiedCall], flow: Flow
    ) -> None:
        """Read a statement without a launch, and the calls in it, before it is added to `flow`."""
        self.calls(statement, calls, flow)
        inside = statement
        if statement.type == "expression_statement" and statement.named_children:
            inside = statement.named_children[0]
            if inside.type == "assignment_expression":
                left = inside.child_by_field_name("left")
                if left is not None and (left.type == "identifier" or _is_output(left)):
                    return
            elif inside.type == "call_expression":
                return
        if inside.type not in _READS:
            self._may_write(statement, inside, flow, lasts=True)

    def calls(
        self, statement: tree_sitter.Node, calls: Iterable[ClassifiedCall], flow: Flow
    ) -> None:
        """Read the calls of a statement that are not launches."""
        for call in calls:
            if call.effect is None or call.effect in _HARMLESS or _AROUND.match(call.callee):
                continue
            self._may_write(statement, call.node, flow, lasts=call.effect != "write")

    def unfollowed(
        self, statement: tree_sitter.Node, changes: Iterable[NameChange], flow: Flow
    ) -> None:
        """Read a statement that gave values to names, after it was added to `flow`: it may be
        unknown whose memory these values are."""
        for change in changes:
            if change.effect != "bind":
                continue
            name, value = self._names.of(change), change.captures["value"][0]
            is_other = flow.get(name).type == "other" and name not in self._names.lists
            if is_other or value.type == "conditional_expression":
                self._may_write(statement, value, flow, lasts=True)

    def _may_write(
        self, statement: tree_sitter.Node, inside: tree_sitter.Node, flow: Flow, *, lasts: bool
    ) -> None:
        """Each buffer named in a statement may be written; if it `lasts`, also later."""
        source = self._outline.source
        start = source.line_start(source.line_of(self._outline.position(statement.start_byte)))
        for name in self._owners(inside, flow, set()):
            self.found.append(OtherUse(start, name, lasts))

    def _owners(self, node: tree_sitter.Node, flow: Flow, seen: set[str]) -> set[str]:
        """The names below a node, and the variables that own the memory behind them."""
        if node.type != "identifier":
            below = (self._owners(child, flow, seen) for child in node.named_children)
            return set().union(*below)
        name = self._outline.read(node)
        if name in seen:
            return set()
        seen.add(name)
        owners = {name, name.removesuffix(_HANDLE), self._names.lasting(name)}
        if name in self._names.pointers:
            owners.add(self._names.pointers[name].name)
        for member in self._names.lists.get(name, ()):
            owners |= self._owners(member, flow, seen)
        return owners | {flow.get(owner).root for owner in owners}


def _is_output(node: tree_sitter.Node) -> bool:
    return node.text is not None and _OUTPUTS.fullmatch(node.text) is not None
