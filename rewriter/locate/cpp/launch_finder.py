"""Walks through the entry bodies of a C++ wrapper, and classifies every call in them.

`grammars/cpp/` declares what to find: the queries run once over each body, and the walk goes
through the statements in order with the matches in each. It tracks what statements do to names, so
that at each launch it is known what the arguments hold.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import tree_sitter

from rewriter.locate.cpp.expression import ValueReader
from rewriter.locate.cpp.grammar import CppGrammar, CppShape
from rewriter.locate.cpp.name_tracker import Captures, ClassifiedCall, NameChange, NameTracker
from rewriter.locate.cpp.other_uses import OtherUses
from rewriter.locate.cpp.outline import Body, CppOutline
from rewriter.locate.cpp.stream_calls import StreamCalls
from rewriter.locate.flow import Flow
from rewriter.locate.streams import StreamTracker
from rewriter.locate.types import InsertionPoint, MemoryEvent, StreamAction, Unrecognised

_SUBGRAPH = re.compile(rb"//\s*subgraph: (\w+)")
_LOOPS = ("while_statement", "for_statement", "do_statement", "for_range_loop")


@dataclass(frozen=True)
class CppLaunch:
    """A launch, at the moment when the walk reaches it.

    If Inductor made a block for it, `inside` are the calls in the block, `local` the names that it
    declares, and `assigned` those outside that it gives values to. `outputs` maps handles that the
    launch fills to the names of the buffers that take them over.
    """

    call: ClassifiedCall
    shape: CppShape
    scope: str
    insertion_point: InsertionPoint
    repeats: bool
    conditional: bool
    inside: tuple[ClassifiedCall, ...]
    local: frozenset[str]
    outputs: dict[str, str]
    assigned: tuple[str, ...]
    comments: tuple[bytes, ...]
    stream: str


class CppLaunchFinder:
    """Walks through the body of one entry. Names are known within one body only.

    `unrecognised` are the calls that are neither launches nor known. These are complete after the
    walk: `names`, `stream_actions`, `memory` (events, and the variables that their memory was
    allocated for), `other_uses` of memory, and `inputs_end`, the offset of the line where all
    inputs have values, if there is one; `weights_end` is the same for the weights of a package.
    """

    def __init__(self, body: Body, outline: CppOutline, grammar: CppGrammar) -> None:
        self.outline = outline
        self.grammar = grammar
        self.reader = ValueReader(outline, grammar)
        self.names = NameTracker(outline, self.reader)
        self.other_uses = OtherUses(outline, self.names)
        self.unrecognised: list[Unrecognised] = []
        self.inputs_end: int | None = None
        self.weights_end: int | None = None
        self.stream_actions: tuple[StreamAction, ...] = ()
        self.memory: list[tuple[MemoryEvent, str]] = []
        self._body = body.node
        self._inputs_used = False
        self._inputs_known = 0
        self._weights_known = 0
        self._last_line = 0  # of the previous statement
        self._scope = self._entry = body.name
        self._loops = 0  # the number of enclosing loops
        self._branches = 0
        self._comments: list[bytes] = []  # since the last launch
        self._calls = self._sorted_calls(body.node)
        self._call_starts = [call.node.start_byte for call in self._calls]
        self._streams = StreamCalls(StreamTracker(outline.line(body.node)), outline)
        self._changes = self._sorted_changes(body.node)
        self._change_starts = [change.start for change in self._changes]

    def launches(self) -> Iterator[tuple[CppLaunch, Flow]]:
        """Walk once, and yield the launches, each with its variables just before it."""
        yield from self._block(self._body, Flow(frozenset(), frozenset()), top=True)
        end = self.outline.position(self._body.end_byte)
        self.stream_actions = self._streams.tracker.end(self.outline.source.line_of(end))

    def calls_above(self, call: ClassifiedCall) -> Iterator[ClassifiedCall]:
        """Yield the calls before this one, the nearest first."""
        first = bisect.bisect_left(self._call_starts, call.node.start_byte)
        return map(self._calls.__getitem__, range(first - 1, -1, -1))

    # The matches of the queries.

    def _sorted_calls(self, body: tree_sitter.Node) -> list[ClassifiedCall]:
        launches: dict[tuple[int, int], tuple[CppShape | None, Captures]] = {}
        # The patterns are in the order of their shapes.
        for pattern, captures in sorted(_matches(self.grammar.launches, body), key=itemgetter(0)):
            place = captures["launch"][0].byte_range
            launches.setdefault(place, (self.grammar.owners[pattern], captures))
        calls = []
        for _, captures in _matches(self.grammar.calls, body):
            node = captures["call"][0]
            callee = self.reader.callee(captures["callee"][0])
            effect = self.grammar.effect(callee)
            matched = launches.get(node.byte_range) if effect is None else None
            if matched is None and effect is None:
                text = " ".join(self.outline.read(node).split())
                self.unrecognised.append(Unrecognised(self.outline.line(node), text))
            arguments = captures["arguments"][0] if "arguments" in captures else None
            shape, captures = matched or (None, captures)
            calls.append(ClassifiedCall(node, callee, arguments, shape, effect, captures))
        return sorted(calls, key=lambda call: call.node.start_byte)

    def _sorted_changes(self, body: tree_sitter.Node) -> list[NameChange]:
        changes = [
            NameChange(captures["name"][0].start_byte, self.grammar.effects[pattern], captures)
            for pattern, captures in _matches(self.grammar.data_flow, body)
        ]
        return sorted(changes, key=lambda change: change.start)

    def _calls_in(self, node: tree_sitter.Node) -> list[ClassifiedCall]:
        return self._calls[_places_in(node, self._call_starts)]

    def _changes_in(self, node: tree_sitter.Node) -> list[NameChange]:
        return self._changes[_places_in(node, self._change_starts)]

    # Statements.

    def _block(
        self, block: tree_sitter.Node, flow: Flow, *, top: bool = False
    ) -> Iterator[tuple[CppLaunch, Flow]]:
        scope = self._scope
        statements = block.named_children
        for position, statement in enumerate(statements):
            if statement.type == "comment":
                self._comment(statement, scope)
                continue
            launches = [call for call in self._calls_in(statement) if call.shape]
            if top:
                self._find_inputs_end(statement, bool(launches) or self._frees_input(statement))
            rest = map(statements.__getitem__, range(position + 1, len(statements)))
            if len(launches) == 1 and self._is_made_for(launches[0], statement):
                yield from self._launch(launches[0], statement, rest, flow)
            elif statement.type == "compound_statement":
                yield from self._block(statement, flow)
            elif statement.type == "if_statement":
                yield from self._branch(statement, flow)
            elif statement.type in _LOOPS:
                yield from self._loop(statement, flow)
            elif launches:
                why = "several launches share its statement"
                yield from self._bare(launches, statement, flow, why)
            else:
                self._simple(statement, flow)
        if not top:
            self._scope = scope

    def _comment(self, node: tree_sitter.Node, outer: str) -> None:
        """Read a comment of a block, which begins in the scope `outer`."""
        text = self.outline.data[node.start_byte : node.end_byte]
        if subgraph := _SUBGRAPH.match(text):
            # As the functions of wrappers in Python are named.
            name = subgraph[1].decode()
            self._scope = name if outer == self._entry else f"{outer}_{name}"
        else:
            self._comments.append(text)

    def _is_made_for(self, call: ClassifiedCall, statement: tree_sitter.Node) -> bool:
        """Whether a statement contains its one launch only to carry it out.

        This holds for a statement that is not a block, and for a block that profiles the launch,
        boxes its arguments, or skips an empty grid; not for the body of a subgraph.
        """
        if statement.type == "compound_statement":
            return not _SUBGRAPH.search(self.outline.data, statement.start_byte, statement.end_byte)
        if statement.type == "if_statement":
            return (
                call.callee == "launchKernel"
                and statement.child_by_field_name("alternative") is None
            )
        return statement.type not in _LOOPS

    def _branch(self, statement: tree_sitter.Node, flow: Flow) -> Iterator[tuple[CppLaunch, Flow]]:
        condition = statement.child_by_field_name("condition")
        if condition is not None:
            yield from self._head(condition, flow)
        calls = self._calls_in(statement)
        if not self._changes_in(statement) and not any(call.shape for call in calls):
            # A check. Copying all known names for each of them would be quadratic.
            self.names.apply(calls, (), flow)
            self.other_uses.nested(statement, calls, flow)
            return
        alternative = flow.branch()
        consequence = statement.child_by_field_name("consequence")
        otherwise = statement.child_by_field_name("alternative")
        self._branches += 1
        if consequence is not None:
            yield from self._nested(consequence, flow)
        if otherwise is not None:
            yield from self._nested(otherwise, alternative)
        self._branches -= 1
        flow.join(alternative)

    def _loop(self, statement: tree_sitter.Node, flow: Flow) -> Iterator[tuple[CppLaunch, Flow]]:
        self._loops += 1
        for child in statement.named_children:
            if child.type in ("compound_statement", "expression_statement"):
                alternative = flow.branch()
                yield from self._nested(child, flow)
                flow.join(alternative)
            else:
                yield from self._head(child, flow)
        self._loops -= 1

    def _head(self, node: tree_sitter.Node, flow: Flow) -> Iterator[tuple[CppLaunch, Flow]]:
        calls = self._calls_in(node)
        self.other_uses.calls(node, calls, flow)
        launches = [call for call in calls if call.shape]
        yield from self._bare(launches, node, flow, "it stands in the head of a block")

    def _nested(self, node: tree_sitter.Node, flow: Flow) -> Iterator[tuple[CppLaunch, Flow]]:
        """Walk through a statement or block that runs under a condition."""
        if node.type == "else_clause":
            for child in node.named_children:
                if child.type != "comment":
                    yield from self._nested(child, flow)
        elif node.type == "compound_statement":
            yield from self._block(node, flow)
        elif node.type == "if_statement":
            yield from self._branch(node, flow)
        else:
            launches = [call for call in self._calls_in(node) if call.shape]
            why = "it is a branch without braces"
            yield from self._bare(launches, node, flow, why)
            if not launches:
                self._simple(node, flow, obstacle=why)

    def _bare(
        self, calls: Sequence[ClassifiedCall], node: tree_sitter.Node, flow: Flow, obstacle: str
    ) -> Iterator[tuple[CppLaunch, Flow]]:
        """Launches that have no statement of their own."""
        for call in calls:
            yield from self._launch(call, node, (), flow, obstacle=obstacle)

    def _simple(self, statement: tree_sitter.Node, flow: Flow, *, obstacle: str = "") -> None:
        calls = self._calls_in(statement)
        self._streams.read(calls, statement)
        changes = self._changes_in(statement)
        self.other_uses.read(statement, calls, flow)
        self.names.apply(calls, changes, flow)
        self.other_uses.unfollowed(statement, changes, flow)
        for change in self.names.memory.take():
            why, shares = obstacle or change.obstacle, change.action == "reuse"
            point = self._insertion_point(statement, statement.end_byte, why, shares=shares)
            about = (change.action, change.buffer, change.of, self.outline.line(statement), point)
            event = MemoryEvent(0, self._scope, *about, is_held=change.is_held)
            self.memory.append((event, change.root))

    def _launch(
        self,
        call: ClassifiedCall,
        statement: tree_sitter.Node,
        rest: Iterable[tree_sitter.Node],
        flow: Flow,
        *,
        obstacle: str = "",
    ) -> Iterator[tuple[CppLaunch, Flow]]:
        assert call.shape is not None
        boxed = statement.type in ("compound_statement", "if_statement")
        inside = tuple(self._calls_in(statement)) if boxed else (call,)
        changes = self._changes_in(statement) if boxed else []
        # The other calls are part of the launch, such as those that box its arguments.
        writes = (other for other in self._calls_in(statement) if other.effect == "write")
        self.other_uses.calls(statement, writes, flow)
        start = call.node.start_byte
        local, assigned = self._bound(changes, start)
        before = (x for x in changes if x.start < start and x.effect != "free")
        declared = (x for x in before if self.names.of(x) in local)
        self.names.apply((x for x in inside if x.node.start_byte < start), declared, flow)
        outputs, end = self._taken_over(call, statement, rest)
        launch = CppLaunch(
            call=call,
            shape=call.shape,
            scope=self._scope,
            insertion_point=self._insertion_point(statement, end, obstacle),
            repeats=self._loops > 0,
            conditional=self._loops > 0 or self._branches > 0,
            inside=inside,
            local=frozenset(local),
            outputs=outputs,
            assigned=tuple(assigned),
            comments=tuple(self._comments),
            stream=self._streams.launched_on(call),
        )
        yield launch, flow
        self._comments = []
        for name in (*assigned, *outputs):
            flow.compute(name, "tensor")
        if not boxed:
            self.names.apply((), self._changes_in(statement), flow)
        for name in local:
            flow.forget(name)

    def _bound(self, changes: Iterable[NameChange], launch: int) -> tuple[set[str], list[str]]:
        """The names that a block declares, and the other names that it binds after its launch."""
        local: set[str] = set()
        assigned = []
        for change in changes:
            name = self.names.of(change)
            if "type" in change.captures:
                local.add(name)
            elif change.effect == "bind" and change.start > launch and name not in local:
                assigned.append(name)
        return local, assigned

    def _taken_over(
        self, call: ClassifiedCall, statement: tree_sitter.Node, rest: Iterable[tree_sitter.Node]
    ) -> tuple[dict[str, str], int]:
        """`{handle: name}` for the handles that the launch fills and buffers take over after it.

        The values can be read under these names only. Also the offset after the last of them.
        """
        given = () if call.arguments is None else call.arguments.named_children
        pointers = (x for x in given if x.type == "pointer_expression")
        handles = {self.outline.read(x).lstrip("&") for x in pointers}
        outputs: dict[str, str] = {}
        end = statement.end_byte
        if not any(handle.endswith("_handle") for handle in handles):
            return outputs, end
        for following in rest:
            if following.type == "comment":
                continue
            if following.type != "declaration":
                break
            taken = {
                self.outline.read(change.captures["value"][0]).strip("()"): self.names.of(change)
                for change in self._changes_in(following)
                if "value" in change.captures
            }
            if not taken.keys() & handles:
                break
            outputs |= {handle: name for handle, name in taken.items() if handle in handles}
            end = following.end_byte
        return outputs, end

    def _insertion_point(
        self, statement: tree_sitter.Node, end: int, obstacle: str, *, shares: bool = False
    ) -> InsertionPoint:
        """Where lines can go; with `shares`, also after other statements on the same line."""
        outline, source = self.outline, self.outline.source
        first, last = outline.position(statement.start_byte), outline.position(end)
        start = source.line_start(source.line_of(first))
        stop = source.line_end(source.line_of(last))
        before = source.data[start:first]
        after = source.data[last:stop].strip()
        if not obstacle and (outline.is_continued(start) or after.endswith(b"\\")):
            obstacle = "a backslash joins its line to another"
        follows = bool(after) and not after.startswith(b"//") and not shares
        if not obstacle and (before.strip() or follows):
            obstacle = "another statement shares its line"
        return InsertionPoint(start, stop, before if not before.strip() else b"", obstacle)

    def _find_inputs_end(self, statement: tree_sitter.Node, uses: bool) -> None:
        """Set `inputs_end` to the line after the last input.

        Assertions about the inputs come later: lines of probes have to run before them.
        """
        known, line = self._inputs_known, self.outline.line(statement)
        if not self._inputs_used and len(self.names.inputs) > known and line > self._last_line:
            self.inputs_end = statement.start_byte
            self._inputs_known = len(self.names.inputs)
        elif uses and self.inputs_end is None:
            self.inputs_end = statement.start_byte
        if not self._inputs_used and len(self.names.weights) > self._weights_known:
            self.weights_end = statement.start_byte if line > self._last_line else None
            self._weights_known = len(self.names.weights)
        self._inputs_used = self._inputs_used or uses
        end = self.outline.position(statement.end_byte)
        self._last_line = self.outline.source.line_of(end)

    def _frees_input(self, statement: tree_sitter.Node) -> bool:
        return any(
            change.effect == "free" and self.names.of(change) in self.names.inputs
            for change in self._changes_in(statement)
        )


def _places_in(node: tree_sitter.Node, starts: Sequence[int]) -> slice:
    first = bisect.bisect_left(starts, node.start_byte)
    return slice(first, bisect.bisect_left(starts, node.end_byte))


def _matches(query: tree_sitter.Query, node: tree_sitter.Node) -> Sequence[tuple[int, Captures]]:
    return tree_sitter.QueryCursor(query).matches(node)
