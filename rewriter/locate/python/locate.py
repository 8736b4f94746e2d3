"""Finds the launches of a Python wrapper, and their arguments.

`module.py` reads the file, each form of a statement once, and `launch_finder.py` walks through the
scopes. The roles that the kernels declare are combined with what data flow knows about the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from rewriter.core import garbage
from rewriter.core.source import Source
from rewriter.core.types import Role
from rewriter.locate import memory, provenance
from rewriter.locate.arguments import DeclaredArgument, distinct_names, unify_roles
from rewriter.locate.flow import Flow
from rewriter.locate.inputs import without_seeds
from rewriter.locate.names import is_partition
from rewriter.locate.python import grammar as grammars
from rewriter.locate.python import outline as outlines
from rewriter.locate.python.call import CallReader, WrittenValue
from rewriter.locate.python.classify import CallClassifier
from rewriter.locate.python.elements import Elements
from rewriter.locate.python.forms import on_one_line
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.inputs import InputFacts, read_facts
from rewriter.locate.python.launch_finder import PythonLaunch, PythonLaunchFinder, WalkedScope
from rewriter.locate.python.lines import Line
from rewriter.locate.python.module import Block, Run
from rewriter.locate.python.outline import PythonOutline
from rewriter.locate.python.roles import RESOLVERS, KernelCall
from rewriter.locate.python.signature import Signatures
from rewriter.locate.python.statements import Statement, head
from rewriter.locate.types import Argument, EntryPoint, Launch, Located


def locate(source: Source) -> Located:
    """Locate every launch. Reads text only; nothing is imported or run.

    Raises `RewriterError` if the source does not parse.
    """
    grammar = grammars.load()
    with garbage.paused():
        return _locate(source, outlines.read(source, grammar), grammar)


def _locate(source: Source, outline: PythonOutline, grammar: PythonGrammar) -> Located:
    classifier = CallClassifier(outline, grammar)
    signatures = Signatures(outline.definitions, outline.functions, outline.module)
    builder = _Builder(signatures, CallReader(grammar))
    walked: list[WalkedScope] = []
    for scope in outline.scopes:
        finder = PythonLaunchFinder(scope, source, outline, classifier, builder.add)
        walked.append(finder.walk())
        builder.end_scope(walked[-1].elements)
    unrecognised = (call for one in walked for call in one.unrecognised)
    launches = builder.launches()
    return Located(
        launches=launches,
        unrecognised=tuple(sorted(unrecognised, key=lambda call: call.line)),
        entries=tuple(without_seeds(one, launches) for one in _entries(outline, source, walked)),
        header=outline.header,
        loader_globals=outline.loader_globals,
        stream_actions=tuple(action for one in walked for action in one.stream_actions),
        other_uses=tuple(use for one in walked for use in one.other_uses),
        memory=memory.numbered((event for one in walked for event in one.memory), launches),
    )


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """A launch that is complete at the end of its scope, when the uses of results are known."""

    launch: Launch
    arguments: list[Argument]
    targets: tuple[str, ...]
    last_line: int
    flow: Flow


class _Builder:
    """Makes launches of what the walk finds."""

    def __init__(self, signatures: Signatures, reader: CallReader) -> None:
        self._signatures = signatures
        self._reader = reader
        self._launches: list[tuple[int, Launch]] = []  # by the order in which they were found
        self._incomplete: list[tuple[int, _Incomplete]] = []
        self._texts: dict[tuple[str, ...], tuple[str, ...]] = {}

    def end_scope(self, elements: Elements) -> None:
        """Complete the launches of a scope after the walk through it."""
        for index, one in self._incomplete:
            arguments = one.arguments + list(_results(one, elements))
            args = distinct_names(unify_roles(arguments, one.flow))
            self._launches.append((index, replace(one.launch, args=args)))
        self._incomplete.clear()

    def launches(self) -> tuple[Launch, ...]:
        """All launches, in file order."""
        # One scope may stand inside of another one, and is walked through after it.
        found = (launch for _, launch in sorted(self._launches, key=lambda one: one[0]))
        ordered = sorted(found, key=lambda launch: launch.insertion_point.start)
        return tuple(
            launch if launch.index == index else replace(launch, index=index)
            for index, launch in enumerate(ordered)
        )

    def add(self, found: PythonLaunch) -> None:
        written = self._reader.read(found.statement, found.call)
        called = KernelCall(found.callee, written, found.kept)
        declared = RESOLVERS[found.shape.roles](called, self._signatures)
        arguments = [
            _argument(found, value, hint)
            for argument, hint in zip(written, declared, strict=True)
            # A list of tensors makes several arguments of the launch.
            for value in argument.values
        ]
        if found.shape.kind == "extern_alloc" and found.kept:
            # It returns what it computes, and only reads what it is given, written or not.
            arguments = [replace(argument, role="in") for argument in arguments]
        is_complete = any(argument.role == "out" for argument in arguments)
        origins, nodes = provenance.read(found.comments)
        index = len(self._launches) + len(self._incomplete)
        launch = Launch(
            index=index,
            scope=found.scope,
            kernel=head(found.callee) if found.shape.roles == "signature" else found.callee,
            kind=found.shape.kind,
            line=found.statement.line_of(found.call),
            args=distinct_names(unify_roles(arguments, found.flow)) if is_complete else (),
            origins=self._texts.setdefault(origins, origins),
            source_nodes=self._texts.setdefault(nodes, nodes),
            insertion_point=found.insertion_point,
            repeats=found.repeats,
            conditional=found.conditional,
            stream=found.stream,
        )
        if is_complete:
            self._launches.append((index, launch))
        else:
            flow = found.flow.only(found.statement.names(found.call))
            line = found.statement.line.last
            one = _Incomplete(launch, arguments, found.targets, line, flow)
            self._incomplete.append((index, one))


def _argument(found: PythonLaunch, value: WrittenValue, declared: DeclaredArgument) -> Argument:
    values, flow = found.statement.values, found.flow
    expr = on_one_line(value.expr.fill(values))
    if not value.kind:
        return Argument(expr, expr, "", "in", "other")
    base = value.base.fill(values)
    if not base:
        return Argument(expr, expr, "", "in", "scalar" if value.kind == "number" else "other")
    view = expr if value.kind == "view" else ""
    kind = declared.type or ("scalar" if value.kind == "arithmetic" else flow.type_of(base))
    role: Role = "in" if kind != "tensor" else flow.role(base, declared.role, view)
    hazard = flow.hazard(base, declared.role) if kind == "tensor" else ""
    return Argument(base, expr, flow.get(base).root, role, kind, hazard=hazard)


def _results(launch: _Incomplete, elements: Elements) -> Iterator[Argument]:
    """Yield what the statement keeps of the launch's result, under the names used later."""
    targets = launch.targets
    taken = elements.of(targets[0], launch.last_line) if len(targets) == 1 else ()
    for name, expr in taken or ((target, target) for target in targets):
        yield Argument(name, expr, name, "out", "tensor")


def _entries(
    outline: PythonOutline, source: Source, walked: Sequence[WalkedScope]
) -> Iterator[EntryPoint]:
    returned = {scope.name: one.returned for scope, one in zip(outline.scopes, walked, strict=True)}
    for scope, one in zip(outline.scopes, walked, strict=True):
        if scope.entry:
            first = _first_line(scope.function)
            if first is not None:
                inputs, inputs_at = _inputs(one.received)
                outputs = tuple(buffer for buffer, _, _ in returned[scope.name])
                names = tuple(name for _, name, _ in returned[scope.name])
                hazards = tuple(hazard for *_, hazard in returned[scope.name])
                for facts in _facts_of_partitions(outline, walked):
                    one.facts.add(facts)
                known = one.facts.specs(inputs, outline.harness)
                indent = source.data[first.start : first.body]
                yield EntryPoint(
                    scope.name,
                    first.start,
                    indent,
                    inputs,
                    inputs_at,
                    outputs,
                    known,
                    names,
                    hazards,
                )
            return


def _first_line(function: Block) -> Line | None:
    """The first line of a function's body; `None` if the body stands on the line of its head."""
    match function.body[0]:
        case Run(lines=[line, *_]) | Block(line=line):
            return line
    return None


def _facts_of_partitions(
    outline: PythonOutline, walked: Sequence[WalkedScope]
) -> Iterator[InputFacts]:
    """What the partitions of a graph, which use the graph's names, say about its inputs."""
    known = {
        id(scope.function): one.facts for scope, one in zip(outline.scopes, walked, strict=True)
    }
    for part in outline.module.body:
        if isinstance(part, Block) and is_partition(part.name):
            yield known.get(id(part)) or read_facts(outline.module, part)


def _inputs(received: Statement | None) -> tuple[tuple[str, ...], int | None]:
    """The names in `arg0_1, arg1_1 = args`, and the offset of the line after it."""
    if received is None or not isinstance(received.node, cst.Assign):
        return (), None
    line = received.line
    is_last = received.node is line.form.statement.body[-1]
    return tuple(received.names(received.node.targets[0])), line.end if is_last else None
