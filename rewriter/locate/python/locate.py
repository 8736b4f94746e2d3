"""Finds the launches of a Python wrapper, and their arguments.

`launch_finder.py` walks through the scopes. Then `call.py` reads all launches, parsing each form of
call once. The roles that the kernels declare are combined with what data flow knows about the
buffers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.core import garbage, limits, python_pieces
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.core.types import Role, Type
from rewriter.locate import memory, provenance
from rewriter.locate.arguments import DeclaredArgument, distinct_names, unify_roles
from rewriter.locate.flow import Flow
from rewriter.locate.inputs import without_seeds
from rewriter.locate.python import grammar as grammars
from rewriter.locate.python import outline as outlines
from rewriter.locate.python.call import CallReader, PythonValue, UnreadableCallError
from rewriter.locate.python.classify import CallClassifier
from rewriter.locate.python.elements import Elements
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.inputs import InputFacts, read_facts
from rewriter.locate.python.launch_finder import PythonLaunch, PythonLaunchFinder, WalkedScope
from rewriter.locate.python.nodes import is_partition, names
from rewriter.locate.python.outline import PythonOutline, head
from rewriter.locate.python.roles import RESOLVERS, KernelCall
from rewriter.locate.python.signature import Signatures
from rewriter.locate.types import Argument, EntryPoint, Launch, Located


def locate(source: Source) -> Located:
    """Locate every launch. Reads text only; nothing is imported or run.

    Raises `RewriterError` if the source does not parse.
    """
    grammar = grammars.load()
    with garbage.paused():
        try:
            outline = outlines.read(source, grammar)
            if outline.module.is_whole:
                return _locate(source, outline, grammar)
            located = _locate(source, outline, grammar)
            outline.module.read_the_rest()
            return located
        except python_pieces.MisreadError:
            pass
        except RewriterError:
            if len(source.data) <= python_pieces.LARGE:
                raise
        # An error has to be about the first mistake of the file, which only the whole tree shows.
        return _locate(source, outlines.read(source, grammar, whole=True), grammar)


def _locate(source: Source, outline: PythonOutline, grammar: PythonGrammar) -> Located:
    classifier = CallClassifier(outline, grammar)
    reader = CallReader(grammar)
    builder = _Builder(source, Signatures(outline.definitions, outline.functions), grammar, reader)
    walked: list[WalkedScope] = []
    for scope in outline.scopes:
        finder = PythonLaunchFinder(scope, source, outline, classifier, reader, builder.add)
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

    def __init__(
        self, source: Source, signatures: Signatures, grammar: PythonGrammar, reader: CallReader
    ) -> None:
        self._source = source
        self._signatures = signatures
        self._reader = reader
        self._launches: list[tuple[int, Launch]] = []
        self._incomplete: list[tuple[int, _Incomplete]] = []
        self._unreadable: list[tuple[int, int]] = []  # offsets and lines
        self._too_deep: list[tuple[int, int]] = []
        self._texts: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, found: PythonLaunch) -> None:
        try:
            self._add(found)
        except UnreadableCallError:
            self._unreadable.append((found.offset, found.line))
        except RecursionError:
            # Python can parse deeper nesting than it can walk through.
            self._too_deep.append((found.offset, found.line))

    def end_scope(self, elements: Elements) -> None:
        """Complete the launches of a scope after the walk through it."""
        for offset, one in self._incomplete:
            arguments = one.arguments + list(_results(one, elements))
            args = distinct_names(unify_roles(arguments, one.flow))
            self._launches.append((offset, replace(one.launch, args=args)))
        self._incomplete.clear()

    def launches(self) -> tuple[Launch, ...]:
        """All launches, in file order. Raises if the arguments of one are unknown."""
        if self._unreadable:
            _, line = min(self._unreadable)
            raise RewriterError(
                "syntax-error",
                f"{self._source.name}:{line}: the arguments of this launch cannot be read\n"
                f"    {self._source.line_text(line).strip()}",
                hint="Expected the output_code.py that torch.compile wrote.",
            )
        if self._too_deep:
            _, line = min(self._too_deep)
            raise limits.too_large(
                f"{self._source.name}:{line}",
                "an argument is nested too deeply",
                str(limits.PYTHON_NESTING),
            )
        self._launches.sort(key=lambda one: one[0])
        return tuple(
            launch if launch.index == index else replace(launch, index=index)
            for index, (_, launch) in enumerate(self._launches)
        )

    def _add(self, found: PythonLaunch) -> None:
        written = self._reader.read(found.text)
        called = KernelCall(found.callee, written, found.kept)
        declared = RESOLVERS[found.shape.roles](called, self._signatures)
        arguments = [
            _argument(value, hint, found.flow)
            for argument, hint in zip(written, declared, strict=True)
            # A list of tensors makes several arguments of the launch.
            for value in argument.values
        ]
        if found.shape.kind == "extern_alloc" and found.kept:
            # It returns what it computes, and only reads what it is given, written or not.
            arguments = [replace(argument, role="in") for argument in arguments]
        is_complete = any(argument.role == "out" for argument in arguments)
        origins, nodes = provenance.read(found.comments)
        launch = Launch(
            index=len(self._launches) + len(self._incomplete),
            scope=found.scope,
            kernel=head(found.callee) if found.shape.roles == "signature" else found.callee,
            kind=found.shape.kind,
            line=found.line,
            args=distinct_names(unify_roles(arguments, found.flow)) if is_complete else (),
            origins=self._texts.setdefault(origins, origins),
            source_nodes=self._texts.setdefault(nodes, nodes),
            insertion_point=found.insertion_point,
            repeats=found.repeats,
            conditional=found.conditional,
            stream=found.stream,
        )
        if is_complete:
            self._launches.append((found.offset, launch))
        else:
            one = _Incomplete(launch, arguments, found.targets, found.last_line, found.flow)
            self._incomplete.append((found.offset, one))


def _argument(value: PythonValue, declared: DeclaredArgument, flow: Flow) -> Argument:
    if not value.kind:
        return Argument(value.expr, value.expr, "", "in", "other")
    if not value.base:
        kind: Type = "scalar" if value.kind == "number" else "other"
        return Argument(value.expr, value.expr, "", "in", kind)
    kind = declared.type or _type(value, flow)
    role: Role = "in" if kind != "tensor" else flow.role(value.base, declared.role, value.view)
    hazard = flow.hazard(value.base, declared.role) if kind == "tensor" else ""
    return Argument(value.base, value.expr, flow.get(value.base).root, role, kind, hazard=hazard)


def _type(value: PythonValue, flow: Flow) -> Type:
    if value.kind == "arithmetic":
        return "scalar"
    return flow.type_of(value.base)


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
            first = scope.function.body[0]
            line = python_pieces.first_line(first)
            start = source.line_start(line)
            before = source.data[start : source.position(first.lineno, first.col_offset)]
            indent = before[: len(before) - len(before.lstrip())]
            alone = line < first.lineno or not before.strip()
            if alone and not source.is_continued(line):
                inputs, inputs_at = _inputs(one.received, source)
                outputs = tuple(buffer for buffer, _, _ in returned[scope.name])
                names = tuple(name for _, name, _ in returned[scope.name])
                hazards = tuple(hazard for *_, hazard in returned[scope.name])
                for facts in _facts_of_partitions(outline, walked):
                    one.facts.add(facts)
                known = one.facts.specs(inputs, outline.harness)
                yield EntryPoint(
                    scope.name, start, indent, inputs, inputs_at, outputs, known, names, hazards
                )
            return


def _facts_of_partitions(
    outline: PythonOutline, walked: Sequence[WalkedScope]
) -> Iterator[InputFacts]:
    """What the partitions of a graph, which use the graph's names, say about its inputs."""
    known = {
        id(scope.function): one.facts for scope, one in zip(outline.scopes, walked, strict=True)
    }
    for node in outline.module.body:
        if isinstance(node, ast.FunctionDef) and is_partition(node.name):
            yield known.get(id(node)) or read_facts(outline.module, node)


def _inputs(received: ast.Assign | None, source: Source) -> tuple[tuple[str, ...], int | None]:
    """The names in `arg0_1, arg1_1 = args`, and the offset of the line after it."""
    if received is None:
        return (), None
    end = received.end_lineno or received.lineno
    behind = source.data[source.position(end, received.end_col_offset or 0) :]
    alone = not re.match(rb"[ \t]*[^\s#]", behind)
    return tuple(names(received.targets[0])), source.line_end(end) if alone else None
