"""Which lines of the model each launch computes.

By the nodes of the graph that it computes, which name lines. Where those are not known, by torch's
own map of lines of the wrapper; that has the line where the code of a node begins, which is not
where its launch stands: a C++ kernel is called later, and what it writes is allocated there.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence

from rewriter.artifact.entries.types import Frame
from rewriter.artifact.naming.graph import FxGraph
from rewriter.dump.names import SourceLine
from rewriter.locate.types import Launch, Located

# `buf0 = empty_strided_cpu(`, `RAIIAtenTensorHandle buf0(buf0_handle);`, `auto buf1 = std::move(`.
_ASSIGNED = re.compile(rb"[ \t]+(?:auto |RAIIAtenTensorHandle )?(\w+)(?: = |\(\w+_handle\);)")


def lines_of_nodes(graph: FxGraph, names: Iterable[str]) -> tuple[SourceLine, ...]:
    """The lines of some nodes, in their order."""
    known = (graph.nodes.get(name) for name in names)
    places = (node.place for node in known if node is not None and node.place is not None)
    lines = (SourceLine(one.file, one.line, one.function, one.code) for one in places)
    return tuple(dict.fromkeys(lines))


def lines_of_map(
    located: Located, line_map: Sequence[tuple[int, Frame]], source: bytes
) -> dict[int, tuple[SourceLine, ...]]:
    """The lines of launches by torch's map of the lines of a wrapper."""
    if not line_map or not source:
        return {}
    starts = [line for line, _ in line_map]
    assigned = _assignments(source)
    scopes = {entry.name for entry in located.entries}
    lines = {}
    for launch in located.launches:
        if launch.scope not in scopes:  # torch's map is of the entry
            continue
        frames = []
        for line in _begins(launch, assigned):
            at = bisect.bisect_right(starts, line) - 1
            frames += [line_map[at][1]] if at >= 0 else []
        if frames:
            found = (SourceLine(x.file, x.line, x.function, x.code) for x in frames)
            lines[launch.index] = tuple(dict.fromkeys(found))
    return lines


def _begins(launch: Launch, assigned: dict[str, list[int]]) -> Iterator[int]:
    """The lines of the wrapper where the code of the nodes begins that a launch computes."""
    if launch.kind != "cpp":
        yield launch.line
        return
    for argument in launch.args:
        if argument.type == "tensor" and argument.role != "in":
            lines = assigned.get(argument.buffer, [])
            if at := bisect.bisect_left(lines, launch.line):
                yield lines[at - 1]


def _assignments(source: bytes) -> dict[str, list[int]]:
    """The lines that give a variable its value, ascending."""
    lines: dict[str, list[int]] = {}
    for number, text in enumerate(source.split(b"\n"), 1):
        if match := _ASSIGNED.match(text):
            lines.setdefault(match[1].decode(), []).append(number)
    return lines
