"""Walks through the scopes of a Python wrapper, and classifies every call in them.

Each call is a launch, a known call that launches nothing, or unrecognised. The walk also tracks
what each statement does to the variables, so that at each launch it is known what its variables
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from rewriter.core.source import Source
from rewriter.core.types import Type
from rewriter.locate.flow import Content, Flow
from rewriter.locate.names import is_partition
from rewriter.locate.python.classify import CallClassifier, view_base
from rewriter.locate.python.elements import Elements
from rewriter.locate.python.grammar import PythonShape
from rewriter.locate.python.inputs import InputFacts
from rewriter.locate.python.lines import Line
from rewriter.locate.python.module import Block, Suite
from rewriter.locate.python.other_uses import OtherUses
from rewriter.locate.python.outline import PythonOutline, ScopeNode
from rewriter.locate.python.statements import (
    Statement,
    calls,
    elements,
    head,
    walk,
)
from rewriter.locate.python.stream_calls import StreamCalls
from rewriter.locate.streams import StreamTracker
from rewriter.locate.types import (
    Hazard,
    InsertionPoint,
    MemoryAction,
    MemoryEvent,
    OtherUse,
    StreamAction,
    Unrecognised,
)

# The types that known calls without launches return, if that is always the same one.
_RESULTS: dict[str, Type] = {"copy": "tensor", "scalar": "scalar", "device": "other"}
_SHARED = "another statement shares its line"


@dataclass(frozen=True, slots=True)
class PythonLaunch:
    """A launch whose arguments are not read yet.

    `kept`: its result is used; `targets` is what the result is assigned to. `flow` has the
    variables just before it, and is only valid until the walk goes on.
    """

    statement: Statement
    call: cst.Call
    callee: str
    shape: PythonShape
    scope: str
    insertion_point: InsertionPoint
    repeats: bool
    conditional: bool
    kept: bool
    targets: tuple[str, ...]
    comments: list[bytes]
    flow: Flow
    stream: str


@dataclass
class WalkedScope:
    """What a walk through a scope collects besides launches, all in the order of the walk.

    `returned` has the buffers that the scope returns, their names there, and what is wrong with
    their memory; `received` is the statement that names its inputs, `facts` what it says about
    inputs, `elements` where it takes parts of results, `stream_actions` what it does to streams,
    `memory` what it does to memory, `other_uses` what else may write memory.
    """

    unrecognised: list[Unrecognised] = field(default_factory=list)
    returned: tuple[tuple[str, str, Hazard], ...] = ()
    received: Statement | None = None
    facts: InputFacts = field(default_factory=InputFacts)
    elements: Elements = field(default_factory=Elements)
    stream_actions: tuple[StreamAction, ...] = ()
    memory: list[MemoryEvent] = field(default_factory=list)
    other_uses: tuple[OtherUse, ...] = ()


class PythonLaunchFinder:
    """Walks through one scope: finds its launches, its outputs, and unrecognised calls.

    `found` gets each launch before the walk goes on.
    """

    def __init__(
        self,
        scope: ScopeNode,
        source: Source,
        outline: PythonOutline,
        classifier: CallClassifier,
        found: Callable[[PythonLaunch], None],
    ) -> None:
        self._scope = scope
        self._source = source
        self._module = outline.module
        self._classifier = classifier
        self._found = found
        self._walked = WalkedScope()
        self._loops = 0  # the number of enclosing loops
        self._branches = 0
        self._last = scope.function.head.line.end  # the end of the last launch
        self._flow = Flow(outline.harness.tensors, outline.harness.constants)
        self._other_uses = OtherUses()
        self._streams = StreamCalls(StreamTracker(scope.function.head.line.number))
        self._given: set[str] = set()  # names of the scope's inputs

    def walk(self) -> WalkedScope:
        """Walk through the scope, once."""
        body = self._scope.function.body
        self._walked.received = self._received(body)
        self._suite(body, self._flow)
        self._walked.stream_actions = self._streams.tracker.end(self._scope.function.last.last)
        self._walked.other_uses = tuple(self._other_uses.found)
        return self._walked

    def _suite(self, suite: Suite, flow: Flow) -> None:
        for part in self._module.each(suite):
            if isinstance(part, Block):
                self._block(part, flow)
            else:
                self._walked.elements.read(part)
                if not self._branches:
                    self._walked.facts.read(part)
                self._statement(part, flow)

    def _block(self, block: Block, flow: Flow) -> None:
        node, head = block.node, block.head
        headers: list[cst.BaseExpression] = []
        match node:
            case cst.If(test=test) | cst.While(test=test):
                headers = [test]
            case cst.For(target=target, iter=iterable):
                headers = [iterable]
                self._other_uses.may_write(head, target, flow)
                self._other_uses.may_write(head, iterable, flow)
            case cst.With(items=items):
                headers = [one.item for one in items]
            case cst.Try() | cst.TryStar():
                pass
            case _:
                self._unknown(block, flow)
                return
        # The condition of a `while` is evaluated each time, the iterable of a `for` once.
        repeats = isinstance(node, cst.While)
        self._loops += repeats
        for header in headers:
            self._calls(head, header, flow, obstacle="it stands in the head of a block")
        self._loops -= repeats
        loop = isinstance(node, (cst.While, cst.For))
        branches = not isinstance(node, (cst.With, cst.Try, cst.TryStar))
        self._loops += loop
        self._branches += branches
        if isinstance(node, cst.With):
            self._context(block, headers, flow)
        else:
            alternative = flow.branch()
            self._suite(block.body, flow)
            self._branches += 1
            self._suite(block.orelse, alternative)
            self._branches -= 1
            flow.join(alternative)
        self._branches += 1
        for handler in block.clauses:
            self._suite(handler, flow.branch())
        self._suite(block.finalbody, flow)
        self._branches -= 1
        self._loops -= loop
        self._branches -= branches

    def _unknown(self, block: Block, flow: Flow) -> None:
        """Read a block whose statements are not followed: a function, a class, a `match`."""
        for part in self._module.every([block]):
            statement = part if isinstance(part, Statement) else part.head
            self._walked.elements.read(statement)
            if not isinstance(block.node, cst.FunctionDef):
                self._calls(statement, statement.node, flow, obstacle="it stands in a block")
                self._other_uses.may_write(statement, statement.node, flow)

    def _context(self, block: Block, contexts: list[cst.BaseExpression], flow: Flow) -> None:
        """Walk through the body of a `with`, which may enter a stream."""
        tracker = self._streams.tracker
        before = tracker.current
        for context in contexts:
            if (stream := self._streams.context(block.head, context)) is not None:
                tracker.enter(stream, block.head.line.number)
        self._suite(block.body, flow)
        tracker.enter(before, block.last.last + 1)

    def _statement(self, statement: Statement, flow: Flow) -> None:
        node = statement.node
        launches = self._calls(statement, node, flow, obstacle="")
        self._other_uses.read(statement, flow, has_launches=bool(launches))
        match node:
            case cst.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(statement, target.target, value, flow, bool(launches))
            case cst.Expr(value=cst.Call() as call):
                path = statement.callee(call)
                if self._classifier.classify(path, call) == "write":
                    flow.write(head(path))
            case cst.Return(value=value):
                self._walked.returned = tuple(_returned(statement, value, flow))
            case cst.Del(target=target):
                for name in statement.names(target):
                    self._release(statement, name, flow)
                    flow.forget(name)
        # Every argument has a value now: it had one before, or the launch wrote it.
        for call in launches:
            for used, view in self._classifier.uses(call):
                if (name := used.fill(statement.values)) in flow.variables:
                    flow.write(name, view.fill(statement.values) if view else "")

    def _received(self, body: Suite) -> Statement | None:
        """The statement that names the inputs of a scope, such as `arg0_1, arg1_1 = args`."""
        for part in self._module.each(body):
            if isinstance(part, Statement) and isinstance(part.node, cst.Assign):
                if _is_args(part.node.value):
                    return part
        return None

    def _assign(
        self,
        statement: Statement,
        target: cst.BaseExpression,
        value: cst.BaseExpression,
        flow: Flow,
        launches: bool,
    ) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            received = _is_args(value)
            for name in statement.names(target):
                if received:
                    self._given.add(name)
                    flow.receive(name)
                else:
                    flow.compute(name, None)
            return
        name = statement.name(target)
        if not name:
            return
        if launches:
            flow.compute(name, None)
            return
        match value:
            case cst.Name(value="None" | "True" | "False"):
                flow.compute(name, "scalar" if value.value != "None" else "other")
            case cst.Name():
                base = statement.name(value)
                self._reuse(statement, name, base, flow)
                flow.alias(name, base, reuse=statement.is_reuse, whole=True)
            case cst.Subscript():
                flow.compute(name, None)
            case cst.Call():
                self._call(statement, name, value, flow)
            case cst.BinaryOperation() | cst.UnaryOperation() | cst.Comparison() | cst.IfExp():
                flow.compute(name, "scalar")
            case cst.Integer() | cst.Float():
                flow.compute(name, "scalar")
            case _:
                flow.compute(name, "other")

    def _call(self, statement: Statement, name: str, value: cst.Call, flow: Flow) -> None:
        """The result of a known call that launches nothing gets a name."""
        effect = self._classifier.classify(statement.callee(value), value)
        if effect == "allocation":
            self._note_memory(statement, "allocate", name)
            flow.allocate(name, empty=_has_no_elements(statement, value))
        elif effect == "view" and (shown := view_base(value)) is not None:
            base = shown.fill(statement.values)
            self._reuse(statement, name, base, flow)
            # `# alias` marks a part of a larger buffer, such as an operand of a concatenation,
            # before something computes it: `codegen_allocation`, for a `NonOwningLayout`.
            is_fresh = "# alias" in statement.comment
            flow.alias(name, base, reuse=statement.is_reuse, fresh=is_fresh)
        elif effect == "view":
            self._other_uses.may_write(statement, value, flow)
            flow.compute(name, None)
        else:
            flow.compute(name, _RESULTS.get(str(effect)))

    def _reuse(self, statement: Statement, name: str, base: str, flow: Flow) -> None:
        if flow.get(base).root in self._given or not statement.is_reuse:
            return
        if flow.get(base).content is not Content.NOTHING:  # else there was no value to lose
            self._note_memory(statement, "reuse", name, base)

    def _release(self, statement: Statement, name: str, flow: Flow) -> None:
        if name not in flow.variables or flow.get(name).root in self._given:
            return
        if name in flow.lost:
            return  # `buf2 = buf1; del buf1  # reuse`
        if flow.type_of(name) == "tensor":
            self._note_memory(statement, "release", name)

    def _note_memory(
        self, statement: Statement, action: MemoryAction, buffer: str, of: str = ""
    ) -> None:
        # The line behind a reuse may also follow other statements on the same line.
        shares = statement.first if action == "reuse" else statement.alone
        point = self._insertion_point(statement, "" if shares else _SHARED)
        scope, line = self._scope.name, statement.line.number
        self._walked.memory.append(MemoryEvent(0, scope, action, buffer, of, line, point))

    def _calls(
        self, statement: Statement, inside: cst.CSTNode, flow: Flow, *, obstacle: str
    ) -> list[cst.Call]:
        """Classify the calls in `inside`; returns the launches among them."""
        if isinstance(inside, cst.Del):
            return []
        launches = []
        for node in calls(inside):
            callee = statement.callee(node)
            verdict = self._classifier.classify(callee, node)
            if isinstance(verdict, PythonShape):
                launches.append(node)
                self._found(self._launch(statement, node, callee, verdict, flow, obstacle))
            elif verdict is None:
                text = " ".join(statement.code(node).split())
                self._walked.unrecognised.append(Unrecognised(statement.line_of(node), text))
            else:
                if verdict == "device":
                    target = next(_targets(statement), "")
                    self._streams.read(statement, callee, node, target)
                self._other_uses.call(statement, node, verdict, flow)
        if _names_in_passing(inside):
            self._other_uses.may_write(statement, statement.node, flow)
        if launches:
            self._last = statement.line.end
        return launches

    def _launch(
        self,
        statement: Statement,
        call: cst.Call,
        callee: str,
        shape: PythonShape,
        flow: Flow,
        obstacle: str,
    ) -> PythonLaunch:
        node = statement.node
        return PythonLaunch(
            statement,
            call,
            callee,
            shape,
            self._scope.name,
            self._insertion_point(statement, obstacle or ("" if statement.alone else _SHARED)),
            repeats=self._loops > 0 or not _runs_once(self._scope),
            conditional=self._branches > 0,
            kept=not (isinstance(node, cst.Expr) and node.value is call),
            targets=tuple(_targets(statement)),
            comments=self._comments(statement.line),
            flow=flow,
            stream=self._streams.launched_on(statement, call),
        )

    def _insertion_point(self, statement: Statement, obstacle: str) -> InsertionPoint:
        """Where lines can go."""
        line = statement.line
        is_last = isinstance(statement.node, cst.Return)
        return InsertionPoint(
            line.start,
            line.end,
            self._source.data[line.start : line.body],
            obstacle,
            "it is part of a return" if is_last else "",
        )

    def _comments(self, line: Line) -> list[bytes]:
        """The comment lines between the previous launch and this one."""
        between = self._source.data[self._last : line.start]
        lines = (one.strip() for one in between.splitlines())
        return [one for one in lines if one.startswith(b"#")]


def _runs_once(scope: ScopeNode) -> bool:
    """Whether one call of the wrapper runs the scope at most once: not so for a subgraph."""
    return scope.entry or is_partition(scope.name)


def _targets(statement: Statement) -> Iterator[str]:
    """The variables, or elements of variables, that the statement's result is assigned to."""
    match statement.node:
        case cst.Assign(targets=[first, *_]):
            for part in elements(first.target):
                if isinstance(part, (cst.Name, cst.Subscript)):
                    yield statement.code(part)


def _has_no_elements(statement: Statement, call: cst.Call) -> bool:
    """Such as `empty_strided_cpu((0, 4), (4, 1), torch.float32)`."""
    match call.args:
        case [cst.Arg(value=cst.Tuple() as size), *_]:
            return any(statement.integer(one.value) == 0 for one in size.elements)
    return False


@lru_cache(maxsize=10_000)
def _names_in_passing(node: cst.CSTNode) -> bool:
    """Whether a statement has an assignment in an expression."""
    return any(isinstance(one, cst.NamedExpr) for one in walk(node))


def _is_args(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value == "args"


def _returned(
    statement: Statement, value: cst.BaseExpression | None, flow: Flow
) -> Iterator[tuple[str, str, Hazard]]:
    """The buffers in `return (buf3, reinterpret_tensor(buf1, …), )`, with their names there, and
    what is wrong with their memory."""
    for member in elements(value):
        while isinstance(member, cst.Call) and member.args:
            member = member.args[0].value
        name = statement.name(member)
        yield (flow.get(name).root, name, flow.hazard(name, "in")) if name else ("", "", "")
