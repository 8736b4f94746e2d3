"""Walks through the scopes of a Python wrapper, and classifies every call in them.

Each call is a launch, a known call that launches nothing, or unrecognised. The walk also tracks
what each statement does to the variables, so that at each launch it is known what its variables
hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import libcst as cst

from rewriter.core.source import Source
from rewriter.core.types import Type
from rewriter.locate import operators, provenance
from rewriter.locate.arguments import DeclaredArgument, distinct_names, unify_roles
from rewriter.locate.flow import Content, Flow
from rewriter.locate.names import is_partition
from rewriter.locate.python.call import arguments, read_arguments
from rewriter.locate.python.classify import CallClassifier, uses, view_base
from rewriter.locate.python.grammar import PythonShape
from rewriter.locate.python.inputs import InputFacts
from rewriter.locate.python.module import Block, Suite
from rewriter.locate.python.other_uses import OtherUses
from rewriter.locate.python.outline import PythonOutline, ScopeNode
from rewriter.locate.python.roles import RESOLVERS, operator_of
from rewriter.locate.python.signature import Signatures
from rewriter.locate.python.statements import Statement, calls, elements, head, subscripted
from rewriter.locate.python.stream_calls import StreamCalls
from rewriter.locate.streams import StreamTracker
from rewriter.locate.types import (
    Argument,
    Hazard,
    InsertionPoint,
    Launch,
    MemoryAction,
    MemoryEvent,
    StreamAction,
    Unrecognised,
)

# The types that known calls without launches return, if that is always the same one.
_RESULTS: dict[str, Type] = {"copy": "tensor", "scalar": "scalar", "device": "other"}
_IN_HEAD = "it stands in the head of a block"
_SHARED = "another statement shares its line"
_SCALARS = (cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.IfExp, cst.BaseNumber)


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """A launch whose results are known at the end of its scope: elements of what it returns are
    taken by later statements."""

    place: int  # in the list of launches
    arguments: list[Argument]
    targets: tuple[str, ...]
    taken: list[Argument]
    flow: Flow


class PythonLaunchFinder:
    """Walks through one scope, and collects what it finds, all in the order of the walk.

    `returned` has the buffers that the scope returns, their names there, and what is wrong with
    their memory; `received` is the statement that names its inputs, `facts` what it says about
    them, `stream_actions` what it does to streams, `memory` what it does to memory, and
    `other_uses` what else may write memory.
    """

    def __init__(
        self,
        scope: ScopeNode,
        source: Source,
        outline: PythonOutline,
        classifier: CallClassifier,
        signatures: Signatures,
    ) -> None:
        self.launches: list[Launch] = []
        self.unrecognised: list[Unrecognised] = []
        self.returned: tuple[tuple[str, str, Hazard], ...] = ()
        self.received: Statement | None = None
        self.facts = InputFacts()
        self.memory: list[MemoryEvent] = []
        self.other_uses = OtherUses()
        self.stream_actions: tuple[StreamAction, ...] = ()
        self._scope = scope
        self._data = source.data
        self._module = outline.module
        self._classifier = classifier
        self._signatures = signatures
        self._flow = Flow(outline.harness.tensors, outline.harness.constants)
        self._streams = StreamCalls(StreamTracker(scope.function.head.line.number))
        self._loops = 0  # the number of enclosing loops
        self._branches = 0
        self._last = scope.function.head.line.end  # the end of the last launch
        self._given: set[str] = set()  # names of the scope's inputs
        self._index = 0
        self._declared: dict[tuple[str, cst.Call], list[DeclaredArgument]] = {}
        self._texts: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._incomplete: list[_Incomplete] = []
        # Elements of the results of launches, by the variable that has these.
        self._taken: dict[str, list[Argument]] = {}

    def walk(self, index: int) -> None:
        """Walk through the scope, once; its first launch gets this index."""
        self._index = index
        body = self._scope.function.body
        self.received = next(filter(_receives, self._module.each(body)), None)
        self._flow.is_closed = self.received is not None
        self._suite(body, self._flow)
        self.stream_actions = self._streams.tracker.end(self._scope.function.last.last)
        for incomplete in self._incomplete:
            results = incomplete.taken or [
                Argument(x, x, x, "out", "tensor") for x in incomplete.targets
            ]
            args = distinct_names(unify_roles(incomplete.arguments + results, incomplete.flow))
            self.launches[incomplete.place] = replace(self.launches[incomplete.place], args=args)

    def _suite(self, suite: Suite, flow: Flow) -> None:
        for part in self._module.each(suite):
            if isinstance(part, Block):
                self._block(part, flow)
            else:
                self._statement(part, flow)

    # --- Compound statements --------------------------------------------------------------------

    def _block(self, block: Block, flow: Flow) -> None:
        node, head = block.node, block.head
        headers: list[cst.BaseExpression] = []
        match node:
            case cst.If(test=test) | cst.While(test=test):
                headers = [test]
            case cst.For(target=target, iter=iterable):
                headers = [iterable]
                self.other_uses.may_write(head, target, flow)
                self.other_uses.may_write(head, iterable, flow)
            case cst.With(items=items):
                headers = [item.item for item in items]
            case cst.FunctionDef():
                return
            case cst.ClassDef() | cst.Match():
                for statement in self._module.every([block]):
                    self._calls(statement, statement.node, flow, obstacle="it stands in a block")
                    self.other_uses.may_write(statement, statement.node, flow)
                return
        # The condition of a `while` is evaluated each time, the iterable of a `for` once.
        self._loops += isinstance(node, cst.While)
        for header in headers:
            self._calls(head, header, flow, obstacle=_IN_HEAD)
        self._loops += isinstance(node, cst.For)
        branches = not isinstance(node, (cst.With, cst.Try, cst.TryStar))
        self._branches += branches
        if isinstance(node, cst.With):
            with_stream = self._streams.tracker.current
            for header in headers:
                self._streams.enter(head, header)
            self._suite(block.body, flow)
            self._streams.tracker.enter(with_stream, block.last.last + 1)
        else:
            alternative = flow.branch()
            self._suite(block.body, flow)
            self._branches += 1
            for clause, suite in block.clauses[1:]:
                if isinstance(clause.node, cst.ExceptHandler):
                    self._calls(clause, clause.node, flow, obstacle=_IN_HEAD)
                is_else = isinstance(clause.node, (cst.Else, cst.If))
                always = isinstance(clause.node, cst.Finally)
                self._suite(suite, alternative if is_else else flow if always else flow.branch())
            self._branches -= 1
            flow.join(alternative)
        self._loops -= isinstance(node, (cst.While, cst.For))
        self._branches -= branches

    # --- Simple statements ----------------------------------------------------------------------

    def _statement(self, statement: Statement, flow: Flow) -> None:
        node = statement.node
        launches = self._calls(statement, node, flow)
        self.other_uses.read(statement, flow, has_launches=bool(launches))
        if not self._branches:
            self.facts.read(statement)
        match node:
            case cst.Assign():
                self._assign(statement, node, flow, bool(launches))
            case cst.Del(target=target):
                for name in statement.names(target):
                    self._release(statement, name, flow)
                    self._taken.pop(name, None)
                    flow.forget(name)
            case cst.Expr(value=cst.Call() as call) if not launches:
                callee = statement.callee(call)
                if self._classifier.classify(callee, call) == "write":
                    flow.write(head(callee))
            case cst.Return(value=value):
                self.returned = tuple(_returned(statement, value, flow))
        # Every argument has a value now: it had one before, or the launch wrote it.
        for call in launches:
            self._written(statement, call, flow)

    def _written(self, statement: Statement, call: cst.Call, flow: Flow) -> None:
        for used, view in uses(call, self._classifier.grammar):
            if (name := used.fill(statement.values)) in flow.variables:
                flow.write(name, view.fill(statement.values) if view else "")

    def _assign(self, statement: Statement, node: cst.Assign, flow: Flow, launches: bool) -> None:
        value = node.value
        for target in (part.target for part in node.targets):
            if not (name := statement.name(target)):
                is_list = isinstance(target, (cst.Tuple, cst.List))
                for member in statement.names(target) if is_list else ():
                    if _is_args(value):
                        self._given.add(member)
                        flow.receive(member)
                    else:
                        flow.compute(member, None)
                if isinstance(target, cst.Subscript) and (given := statement.name(value)):
                    # `buf3[1] = buf0`: the functions of a loop, which get `buf3`, may write it.
                    flow.write(given)
            elif launches:
                flow.compute(name, None)
            else:
                self._bind(statement, name, value, flow)

    def _bind(self, statement: Statement, name: str, value: cst.BaseExpression, flow: Flow) -> None:
        """Something other than the result of a launch gets a name."""
        if (taken := self._taken.get(subscripted(statement, value))) is not None:
            taken.append(Argument(name, statement.code(value), name, "out", "tensor"))
        self._taken.pop(name, None)
        if isinstance(value, cst.Call):
            self._call(statement, name, value, flow)
        elif base := statement.name(value):
            self._reuse(statement, name, base, flow)
            flow.alias(name, base, reuse=statement.is_reuse, whole=True)
        elif isinstance(value, cst.Subscript):
            flow.compute(name, None)
        else:
            flow.compute(name, "scalar" if isinstance(value, _SCALARS) else "other")

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
        else:
            if effect == "view":
                self.other_uses.may_write(statement, value, flow)
            flow.compute(name, _RESULTS.get(str(effect)))

    # --- Memory ---------------------------------------------------------------------------------

    def _reuse(self, statement: Statement, name: str, base: str, flow: Flow) -> None:
        known = flow.get(base)
        has_value = known.content is not Content.NOTHING  # that is lost
        if statement.is_reuse and has_value and known.root not in self._given:
            self._note_memory(statement, "reuse", name, base)

    def _release(self, statement: Statement, name: str, flow: Flow) -> None:
        is_own = name in flow.variables and flow.get(name).root not in self._given
        # Of `buf2 = buf1; del buf1  # reuse`, `buf1` is lost.
        if is_own and name not in flow.lost and flow.type_of(name) == "tensor":
            self._note_memory(statement, "release", name)

    def _note_memory(
        self, statement: Statement, action: MemoryAction, buffer: str, of: str = ""
    ) -> None:
        # The line behind a reuse may also follow other statements on the same line.
        fits = statement.is_first if action == "reuse" else statement.is_alone
        point = self._insertion_point(statement, "" if fits else _SHARED)
        scope, line = self._scope.name, statement.line.number
        self.memory.append(MemoryEvent(0, scope, action, buffer, of, line, point))

    # --- Launches -------------------------------------------------------------------------------

    def _calls(
        self, statement: Statement, inside: cst.CSTNode, flow: Flow, *, obstacle: str = ""
    ) -> list[cst.Call]:
        """Classify the calls in `inside`; returns the launches among them."""
        launches = []
        for call in calls(inside):
            callee = statement.callee(call)
            verdict = self._classifier.classify(callee, call)
            if isinstance(verdict, PythonShape):
                launches.append(call)
                self._launch(statement, call, verdict, flow, obstacle)
            elif verdict is None:
                text = " ".join(statement.code(call).split())
                self.unrecognised.append(Unrecognised(statement.line_of(call), text))
                self._written(statement, call, flow)
            else:
                if verdict == "device":
                    target = next(_targets(statement), "")
                    self._streams.read(statement, callee, call, target)
                self.other_uses.call(statement, call, verdict, flow)
        self.other_uses.named_in_passing(statement, inside, flow)
        if launches:
            self._last = statement.line.end
        return launches

    def _launch(
        self, statement: Statement, call: cst.Call, shape: PythonShape, flow: Flow, obstacle: str
    ) -> None:
        callee = statement.callee(call)
        written = read_arguments(call, self._classifier.grammar)
        is_kept = not (isinstance(statement.node, cst.Expr) and statement.node.value is call)
        if (callee, call) not in self._declared:
            resolve = RESOLVERS[shape.roles]
            self._declared[callee, call] = resolve(callee, written, is_kept, self._signatures)
        given = list(arguments(statement, written, self._declared[callee, call], flow))
        is_pure = shape.roles == "schema" and operators.is_pure(operator_of(callee))
        if is_kept and (shape.kind == "extern_alloc" or is_pure):
            # It returns what it computes, and only reads what it is given, written or not.
            given = [replace(argument, role="in") for argument in given]
        targets = tuple(_targets(statement))
        for target in targets:
            self._taken.pop(target, None)
        is_complete = any(argument.role == "out" for argument in given)
        if not is_complete:
            flow_here = flow.only(statement.names(call))
            one = _Incomplete(len(self.launches), given, targets, [], flow_here)
            self._incomplete.append(one)
            if len(targets) == 1:
                self._taken[targets[0]] = one.taken
        origins, nodes = provenance.read(self._comments(statement.line.start))
        obstacle = obstacle or ("" if statement.is_alone else _SHARED)
        self.launches.append(
            Launch(
                index=self._index + len(self.launches),
                scope=self._scope.name,
                kernel=head(callee) if shape.roles == "signature" else callee,
                kind=shape.kind,
                line=statement.line_of(call),
                args=distinct_names(unify_roles(given, flow)) if is_complete else (),
                origins=self._texts.setdefault(origins, origins),
                source_nodes=self._texts.setdefault(nodes, nodes),
                insertion_point=self._insertion_point(statement, obstacle),
                # A subgraph may be called several times.
                repeats=self._loops > 0
                or not (self._scope.entry or is_partition(self._scope.name)),
                conditional=self._branches > 0,
                stream=self._streams.launched_on(statement, call),
            )
        )

    def _insertion_point(self, statement: Statement, obstacle: str) -> InsertionPoint:
        line = statement.line
        open_ended = "it is part of a return" if isinstance(statement.node, cst.Return) else ""
        indent = self._data[line.start : line.body]
        return InsertionPoint(line.start, line.end, indent, obstacle, open_ended)

    def _comments(self, start: int) -> Iterator[bytes]:
        """The comment lines between the previous launch and this one."""
        lines = (splitline.strip() for splitline in self._data[self._last : start].splitlines())
        return (line for line in lines if line.startswith(b"#"))


def _targets(statement: Statement) -> Iterator[str]:
    """The variables, or elements of variables, that the statement's result is assigned to."""
    if isinstance(statement.node, cst.Assign):
        for part in elements(statement.node.targets[0].target):
            if isinstance(part, (cst.Name, cst.Subscript)):
                yield statement.code(part)


def _has_no_elements(statement: Statement, call: cst.Call) -> bool:
    """Such as `empty_strided_cpu((0, 4), (4, 1), torch.float32)`."""
    sizes = elements(call.args[0].value) if call.args else []
    return any(statement.code(size) == "0" for size in sizes)


def _receives(part: Statement | Block) -> TypeGuard[Statement]:
    """Such as `arg0_1, arg1_1 = args`."""
    return isinstance(part.node, cst.Assign) and _is_args(part.node.value)


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
        is_tensor = name not in ("", "None")
        yield (flow.get(name).root, name, flow.hazard(name, "in")) if is_tensor else ("", "", "")
