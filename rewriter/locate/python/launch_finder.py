"""Walks through the scopes of a Python wrapper, and classifies every call in them.

Each call is a launch, a known call that launches nothing, or unrecognised. The walk also tracks
what each statement does to the variables, so that at each launch it is known what its variables
hold.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from rewriter.core.source import Source
from rewriter.core.types import Type
from rewriter.locate.flow import Content, Flow
from rewriter.locate.python import outline as outlines
from rewriter.locate.python.call import CallReader
from rewriter.locate.python.classify import CallClassifier, view_base
from rewriter.locate.python.elements import Elements
from rewriter.locate.python.grammar import PythonShape
from rewriter.locate.python.inputs import InputFacts
from rewriter.locate.python.nodes import children, is_partition, names, walk
from rewriter.locate.python.other_uses import OtherUses
from rewriter.locate.python.outline import PythonOutline, ScopeNode, callee, head
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


@dataclass(frozen=True)
class PythonLaunch:
    """A launch whose arguments are not read yet; `text` is its call. Refers to no syntax tree.

    `kept`: its result is used; `targets` is what the result is assigned to. `flow` has its
    variables just before it. `last_line` is that of its statement.
    """

    text: str
    line: int
    last_line: int
    callee: str
    shape: PythonShape
    scope: str
    offset: int
    insertion_point: InsertionPoint
    repeats: bool
    conditional: bool
    kept: bool
    targets: tuple[str, ...]
    comments: tuple[bytes, ...]
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
    received: ast.Assign | None = None
    facts: InputFacts = field(default_factory=InputFacts)
    elements: Elements = field(default_factory=Elements)
    stream_actions: tuple[StreamAction, ...] = ()
    memory: list[MemoryEvent] = field(default_factory=list)
    other_uses: tuple[OtherUse, ...] = ()


class PythonLaunchFinder:
    """Walks through one scope: finds its launches, its outputs, and unrecognised calls.

    `found` gets each launch before the walk goes on: `launch.flow` is invalid later.
    """

    def __init__(
        self,
        scope: ScopeNode,
        source: Source,
        outline: PythonOutline,
        classifier: CallClassifier,
        reader: CallReader,
        found: Callable[[PythonLaunch], None],
    ) -> None:
        self._scope = scope
        self._source = source
        self._module = outline.module
        self._classifier = classifier
        self._reader = reader
        self._found = found
        self._walked = WalkedScope()
        self._loops = 0  # the number of enclosing loops
        self._branches = 0
        self._last = scope.function.lineno  # the line after the last launch
        self._flow = Flow(outline.harness.tensors, outline.harness.constants)
        self._other_uses = OtherUses(source)
        self._streams = StreamCalls(StreamTracker(scope.function.lineno))
        self._given: set[str] = set()  # names of the scope's inputs

    def walk(self) -> WalkedScope:
        """Walk through the scope, once."""
        for statement in self._module.statements(self._scope.function.body):
            if self._walked.received is None and _receives(statement):
                self._walked.received = statement
            self._statement(statement, self._flow)
        function = self._scope.function
        end = function.end_lineno or function.lineno
        self._walked.stream_actions = self._streams.tracker.end(end)
        self._walked.other_uses = tuple(self._other_uses.found)
        return self._walked

    def _block(self, body: list[ast.stmt], flow: Flow) -> None:
        for statement in self._module.statements(body):
            self._statement(statement, flow)

    def _statement(self, statement: ast.stmt, flow: Flow) -> None:
        if isinstance(statement, (ast.If, ast.While, ast.For, ast.With, ast.Try)):
            self._compound(statement, flow)
            return
        if isinstance(statement, ast.Match):
            self._other_uses.may_write(statement, statement, flow)
        if isinstance(statement, (ast.Assign, ast.Delete)):
            self._walked.elements.read(statement)
        elif isinstance(statement, ast.Match) or hasattr(statement, "body"):
            for inner in self._module.walk(statement):
                self._walked.elements.read(inner)
        if not isinstance(statement, outlines.Function):
            if not self._branches:
                self._walked.facts.read(statement)
            self._simple(statement, flow)

    def _compound(
        self, statement: ast.If | ast.While | ast.For | ast.With | ast.Try, flow: Flow
    ) -> None:
        headers: list[ast.expr] = []
        if isinstance(statement, (ast.If, ast.While)):
            headers = [statement.test]
        elif isinstance(statement, ast.For):
            headers = [statement.iter]
        elif isinstance(statement, ast.With):
            headers = [item.context_expr for item in statement.items]
        # The condition of a `while` is evaluated each time, the iterable of a `for` once.
        repeats = isinstance(statement, ast.While)
        self._loops += repeats
        for header in headers:
            self._calls(statement, header, flow, obstacle="it stands in the head of a block")
        self._loops -= repeats
        loop = isinstance(statement, (ast.While, ast.For))
        branches = not isinstance(statement, (ast.With, ast.Try))
        self._loops += loop
        self._branches += branches
        if isinstance(statement, ast.For):
            self._other_uses.may_write(statement, statement.target, flow)
            self._other_uses.may_write(statement, statement.iter, flow)
        if isinstance(statement, ast.With):
            self._context(statement, flow)
        else:
            alternative = flow.branch()
            self._block(statement.body, flow)
            self._branches += 1
            self._block(statement.orelse, alternative)
            self._branches -= 1
            flow.join(alternative)
        if isinstance(statement, ast.Try):
            self._branches += 1
            for handler in statement.handlers:
                self._block(handler.body, flow.branch())
            self._block(statement.finalbody, flow)
            self._branches -= 1
        self._loops -= loop
        self._branches -= branches

    def _context(self, statement: ast.With, flow: Flow) -> None:
        """Walk through the body of a `with`, which may enter a stream."""
        tracker = self._streams.tracker
        before = tracker.current
        for item in statement.items:
            if (stream := self._streams.context(item.context_expr)) is not None:
                tracker.enter(stream, statement.lineno)
        self._block(statement.body, flow)
        tracker.enter(before, (statement.end_lineno or statement.lineno) + 1)

    def _simple(self, statement: ast.stmt, flow: Flow) -> None:
        launches = self._calls(statement, statement, flow, obstacle="")
        self._other_uses.read(statement, flow, has_launches=bool(launches))
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(statement, target, statement.value, flow, bool(launches))
        elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
            if self._classifier.classify(callee(call), call) == "write":
                flow.write(head(callee(call)))
        elif isinstance(statement, ast.Return):
            self._walked.returned = tuple(_returned(statement.value, flow))
        elif isinstance(statement, ast.Delete):
            for name in names(statement):
                self._release(statement, name, flow)
                flow.forget(name)
        # Every argument has a value now: it had one before, or the launch wrote it.
        for call in launches:
            for name, view in self._uses(call):
                if name in flow.variables:
                    flow.write(name, view)

    def _uses(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield the variables in `node`, each with the view of it that is used, if any."""
        if isinstance(node, ast.Name):
            yield node.id, ""
        elif isinstance(node, ast.Call) and self._classifier.is_view(node):
            yield view_base(node), self._unparse(node)
        else:
            for child in children(node):
                yield from self._uses(child)

    def _unparse(self, node: ast.expr) -> str:
        if node.lineno != node.end_lineno:
            return ast.unparse(node)
        return self._reader.unparse(self._source.text_of(node))

    def _assign(
        self,
        statement: ast.Assign,
        target: ast.expr,
        value: ast.expr,
        flow: Flow,
        launches: bool,
    ) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            received = isinstance(value, ast.Name) and value.id == "args"
            for name in names(target):
                if received:
                    self._given.add(name)
                    flow.receive(name)
                else:
                    flow.compute(name, None)
            return
        if not isinstance(target, ast.Name):
            return
        name = target.id
        if launches:
            flow.compute(name, None)
        elif isinstance(value, ast.Name):
            self._reuse(statement, name, value.id, flow)
            flow.alias(name, value.id, reuse=self._is_reuse(statement), whole=True)
        elif isinstance(value, ast.Subscript):
            flow.compute(name, None)
        elif isinstance(value, ast.Call):
            effect = self._classifier.classify(callee(value), value)
            if effect == "allocation":
                self._note_memory(statement, "allocate", name)
                flow.allocate(name, empty=_has_no_elements(value))
            elif effect == "view" and (base := view_base(value)):
                self._reuse(statement, name, base, flow)
                flow.alias(
                    name,
                    base,
                    reuse=self._is_reuse(statement),
                    fresh="# alias" in self._rest(statement),
                )
            elif effect == "view":
                self._other_uses.may_write(statement, value, flow)
                flow.compute(name, None)
            else:
                flow.compute(name, _RESULTS.get(str(effect)))
        elif isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp)) or (
            isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
        ):
            flow.compute(name, "scalar")
        else:
            flow.compute(name, "other")

    def _reuse(self, statement: ast.Assign, name: str, base: str, flow: Flow) -> None:
        if flow.get(base).root in self._given or not self._is_reuse(statement):
            return
        if flow.get(base).content is not Content.NOTHING:  # else there was no value to lose
            self._note_memory(statement, "reuse", name, base)

    def _release(self, statement: ast.stmt, name: str, flow: Flow) -> None:
        if name not in flow.variables or flow.get(name).root in self._given:
            return
        if name in flow.lost:
            return  # `buf2 = buf1; del buf1  # reuse`
        if flow.type_of(name) == "tensor":
            self._note_memory(statement, "release", name)

    def _note_memory(
        self, statement: ast.stmt, action: MemoryAction, buffer: str, of: str = ""
    ) -> None:
        point = self._insertion_point(statement, "", shares=action == "reuse")
        scope, line = self._scope.name, statement.lineno
        self._walked.memory.append(MemoryEvent(0, scope, action, buffer, of, line, point))

    def _is_reuse(self, statement: ast.stmt) -> bool:
        """Whether `base` is reused: Inductor frees it on the same line, or has a comment there
        (`make_buffer_reuse`)."""
        rest = self._rest(statement)
        return "del " in rest or "# reuse" in rest

    def _rest(self, statement: ast.stmt) -> str:
        """The rest of the line after a statement.

        The comment `# alias` there marks a part of a larger buffer, such as an operand of a
        concatenation, before something computes it: `codegen_allocation`, for a `NonOwningLayout`.
        """
        last = statement.end_lineno or statement.lineno
        offset = self._source.position(last, statement.end_col_offset or 0)
        return self._source.data[offset : self._source.line_end(last)].decode("utf-8")

    def _calls(
        self, statement: ast.stmt, inside: ast.AST, flow: Flow, *, obstacle: str
    ) -> list[ast.Call]:
        """Classify the calls in `inside`; returns the launches among them."""
        if isinstance(inside, ast.Delete):
            return []
        launches = []
        for node in walk(inside):
            if not isinstance(node, ast.Call):
                if isinstance(node, ast.NamedExpr):
                    self._other_uses.may_write(statement, statement, flow)
                continue
            path = callee(node)
            verdict = self._classifier.classify(path, node)
            if isinstance(verdict, PythonShape):
                launches.append(node)
                self._found(self._launch(statement, node, path, verdict, flow, obstacle))
            elif verdict is None:
                text = " ".join(self._source.text_of(node).split())
                self._walked.unrecognised.append(Unrecognised(node.lineno, text))
            elif verdict == "device":
                self._streams.read(
                    path, node, _targets(statement)[0] if _targets(statement) else ""
                )
            if isinstance(verdict, str):
                self._other_uses.call(statement, node, verdict, flow)
        if launches:
            self._last = (statement.end_lineno or statement.lineno) + 1
        return launches

    def _launch(
        self,
        statement: ast.stmt,
        call: ast.Call,
        path: str,
        shape: PythonShape,
        flow: Flow,
        obstacle: str,
    ) -> PythonLaunch:
        return PythonLaunch(
            text=self._source.text_of(call),
            line=call.lineno,
            last_line=statement.end_lineno or 0,
            callee=path,
            shape=shape,
            scope=self._scope.name,
            offset=self._source.position(call.lineno, call.col_offset),
            insertion_point=self._insertion_point(statement, obstacle),
            repeats=self._loops > 0 or not _runs_once(self._scope),
            conditional=self._branches > 0,
            kept=not (isinstance(statement, ast.Expr) and statement.value is call),
            targets=_targets(statement),
            comments=self._comments(statement),
            flow=flow.only(names(call)),
            stream=self._streams.launched_on(call),
        )

    def _insertion_point(
        self, statement: ast.stmt, obstacle: str, *, shares: bool = False
    ) -> InsertionPoint:
        """Where lines can go; with `shares`, also after other statements on the same line."""
        source = self._source
        last = statement.end_lineno or statement.lineno
        start, end = source.line_start(statement.lineno), source.line_end(last)
        before = source.data[start : source.position(statement.lineno, statement.col_offset)]
        after = source.data[source.position(last, statement.end_col_offset or 0) : end].strip()
        if not obstacle and source.is_continued(statement.lineno):
            obstacle = "a backslash joins its line to another"
        follows = bool(after) and not after.startswith(b"#") and not shares
        if not obstacle and (before.strip() or follows):
            obstacle = "another statement shares its line"
        return InsertionPoint(
            start,
            end,
            before if not before.strip() else b"",
            obstacle,
            "it is part of a return" if isinstance(statement, ast.Return) else "",
        )

    def _comments(self, statement: ast.stmt) -> tuple[bytes, ...]:
        """The comment lines between the previous launch and this one."""
        if self._last > statement.lineno:
            # Two launches share a line, which may be the last of the file.
            return ()
        start = self._source.line_start(self._last)
        between = self._source.data[start : self._source.line_start(statement.lineno)]
        lines = (line.strip() for line in between.splitlines())
        return tuple(line for line in lines if line.startswith(b"#"))


def _runs_once(scope: ScopeNode) -> bool:
    """Whether one call of the wrapper runs the scope at most once: not so for a subgraph."""
    return scope.entry or is_partition(scope.name)


def _targets(statement: ast.stmt) -> tuple[str, ...]:
    """The variables, or elements of variables, that the statement's result is assigned to."""
    if not isinstance(statement, ast.Assign):
        return ()
    target = statement.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return tuple(ast.unparse(part) for part in parts if isinstance(part, (ast.Name, ast.Subscript)))


def _has_no_elements(call: ast.Call) -> bool:
    """Such as `empty_strided_cpu((0, 4), (4, 1), torch.float32)`."""
    size = call.args[0] if call.args else None
    return isinstance(size, ast.Tuple) and any(
        isinstance(one, ast.Constant) and one.value == 0 for one in size.elts
    )


def _receives(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """Such as `arg0_1, arg1_1 = args`."""
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Name)
        and statement.value.id == "args"
    )


def _returned(value: ast.expr | None, flow: Flow) -> Iterator[tuple[str, str, Hazard]]:
    """The buffers in `return (buf3, reinterpret_tensor(buf1, …), )`, with their names there, and
    what is wrong with their memory."""
    for member in value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]:
        while isinstance(member, ast.Call) and member.args:
            member = member.args[0]
        name = member.id if isinstance(member, ast.Name) else ""
        yield (flow.get(name).root, name, flow.hazard(name, "in")) if name else ("", "", "")
