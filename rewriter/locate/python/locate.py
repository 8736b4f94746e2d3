"""Finds the launches of a Python wrapper, and their arguments.

`module.py` reads the file, each form of a statement once, and `launch_finder.py` walks through the
scopes. The roles that the kernels declare are combined with what data flow knows about the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from rewriter.core import garbage
from rewriter.core.source import Source
from rewriter.locate import memory
from rewriter.locate.inputs import without_seeds
from rewriter.locate.names import is_partition
from rewriter.locate.python import grammar as grammars
from rewriter.locate.python import outline as outlines
from rewriter.locate.python.classify import CallClassifier
from rewriter.locate.python.launch_finder import PythonLaunchFinder
from rewriter.locate.python.lines import Line
from rewriter.locate.python.module import Block, Run
from rewriter.locate.python.outline import PythonOutline, ScopeNode
from rewriter.locate.python.signature import Signatures
from rewriter.locate.python.statements import Statement
from rewriter.locate.types import EntryPoint, Launch, Located

_Walked = Sequence[tuple[ScopeNode, PythonLaunchFinder]]


def locate(source: Source) -> Located:
    """Locate every launch. Reads text only; nothing is imported or run.

    Raises `RewriterError` if the source does not parse.
    """
    grammar = grammars.load()
    with garbage.paused():
        outline = outlines.read(source, grammar)
        common = outline, CallClassifier(outline, grammar), Signatures(outline)
        walked = [(scope, PythonLaunchFinder(scope, source, *common)) for scope in outline.scopes]
        found: list[Launch] = []
        for _, finder in walked:
            finder.walk(len(found))
            found += finder.launches
        launches = _in_order(found)
        unrecognised = (call for _, finder in walked for call in finder.unrecognised)
        events = (event for _, finder in walked for event in finder.memory)
        return Located(
            launches=launches,
            unrecognised=tuple(sorted(unrecognised, key=lambda call: call.line)),
            entries=tuple(
                without_seeds(entry, launches) for entry in _entries(outline, source, walked)
            ),
            header=outline.header,
            loader_globals=outline.loader_globals,
            stream_actions=tuple(x for _, finder in walked for x in finder.stream_actions),
            other_uses=tuple(use for _, finder in walked for use in finder.other_uses.found),
            memory=memory.numbered(events, launches),
        )


def _in_order(launches: list[Launch]) -> tuple[Launch, ...]:
    """The launches in file order: a scope may stand inside of another one."""
    ordered = sorted(launches, key=lambda launch: launch.insertion_point.start)
    return tuple(
        launch if launch.index == index else replace(launch, index=index)
        for index, launch in enumerate(ordered)
    )


def _entries(outline: PythonOutline, source: Source, walked: _Walked) -> Iterator[EntryPoint]:
    """The function that callers run, unless its body stands on the line of its head."""
    for scope, finder in walked:
        first = _first_line(scope.function)
        if not scope.entry or first is None:
            continue
        inputs, inputs_at = _inputs(finder.received)
        for other, partition in walked:
            if is_partition(other.name):  # these use the graph's names
                finder.facts.add(partition.facts)
        yield EntryPoint(
            scope.name,
            first.start,
            source.data[first.start : first.body],
            inputs,
            inputs_at,
            outputs=tuple(buffer for buffer, _, _ in finder.returned),
            input_specs=finder.facts.specs(inputs, outline.harness),
            returned=tuple(name for _, name, _ in finder.returned),
            hazards=tuple(hazard for *_, hazard in finder.returned),
        )
        return


def _first_line(function: Block) -> Line | None:
    """The first line of a function's body; `None` if the body stands on the line of its head."""
    match function.body[0]:
        case Run(lines=[line, *_]) | Block(line=line):
            return line
    return None


def _inputs(received: Statement | None) -> tuple[tuple[str, ...], int | None]:
    """The names in `arg0_1, arg1_1 = args`, and the offset of the line after it."""
    if received is None or not isinstance(received.node, cst.Assign):
        return (), None
    is_last = received.whole is not None and received.node is received.whole.body[-1]
    names = tuple(received.names(received.node.targets[0]))
    return names, received.line.end if is_last else None
