"""Which lines of the model each launch computes.

By the nodes of the graph that it computes, which name lines. Where those are not known, by torch's
own map of lines of the wrapper; that has the line where the code of a node begins, which is not
where its launch stands: a C++ kernel is called later, and what it writes is allocated there.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from rewriter.artifact.entries.types import Frame
from rewriter.artifact.naming.graph import FxGraph
from rewriter.dump.names import SourceLine
from rewriter.locate.types import Launch, Located


def lines_of(
    located: Located,
    graph: FxGraph,
    computed: Mapping[int, Sequence[str]],
    line_map: Sequence[tuple[int, Frame]],
) -> dict[int, tuple[SourceLine, ...]]:
    """The lines of the model of launches, by index, in the order of the graph."""
    lines = {}
    starts = [line for line, _ in line_map]
    for launch in located.launches:
        found = _of_nodes(graph, computed.get(launch.index, ()))
        if not found and starts:
            found = _of_map(launch, starts, line_map)
        if found:
            lines[launch.index] = found
    return lines


def _of_nodes(graph: FxGraph, names: Sequence[str]) -> tuple[SourceLine, ...]:
    known = (graph.nodes.get(name) for name in names)
    places = (node.place for node in known if node is not None and node.place is not None)
    lines = (SourceLine(one.file, one.line, one.function, one.code) for one in places)
    return tuple(dict.fromkeys(lines))


def _of_map(
    launch: Launch, starts: Sequence[int], line_map: Sequence[tuple[int, Frame]]
) -> tuple[SourceLine, ...]:
    if launch.kind == "cpp":
        return ()
    at = bisect.bisect_right(starts, launch.line) - 1
    if at < 0:
        return ()
    frame = line_map[at][1]
    return (SourceLine(frame.file, frame.line, frame.function, frame.code),)
