"""Tells which lines of the model each launch computes.

The nodes that a launch computes name lines. If the nodes are not known, torch's own map of the
wrapper's lines is used. It has the line where the code of a node begins, which is not the line of
the launch: the output of a C++ kernel is allocated there, and the kernel is called later.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence

from rewriter.dump.names import SourceLine
from rewriter.locate.types import Launch, Located
from rewriter.model_names.graph import FxGraph

# `buf0 = empty_strided_cpu(`, `RAIIAtenTensorHandle buf0(buf0_handle);`, `auto buf1 = std::move(`.
_ASSIGNED = re.compile(rb"[ \t]+(?:auto |RAIIAtenTensorHandle )?(\w+)(?: = |\(\w+_handle\);)")


def lines_of_nodes(graph: FxGraph, names: Iterable[str] | None = None) -> tuple[SourceLine, ...]:
    """The lines of some nodes, or of all, in order."""
    known = (graph.nodes.get(name) for name in (graph.nodes if names is None else names))
    places = (node.place for node in known if node is not None and node.place is not None)
    lines = (SourceLine(place.file, place.line, place.function, place.code) for place in places)
    return tuple(dict.fromkeys(lines))


def lines_of_map(
    located: Located, line_map: Sequence[tuple[int, SourceLine]], source: bytes
) -> dict[int, tuple[SourceLine, ...]]:
    """The lines of launches, by torch's map of a wrapper's lines."""
    if not line_map or not source:
        return {}
    starts = [line for line, _ in line_map]
    assigned = _assignments(source)
    scopes = {entry.name for entry in located.entries}
    lines = {}
    for launch in located.launches:
        if launch.scope not in scopes:  # torch's map covers only the entry
            continue
        frames = []
        for line in _begins(launch, assigned):
            at = bisect.bisect_right(starts, line) - 1
            frames += [line_map[at][1]] if at >= 0 else []
        if frames:
            lines[launch.index] = tuple(dict.fromkeys(frames))
    return lines


def _begins(launch: Launch, assigned: dict[str, list[int]]) -> Iterator[int]:
    """Yield the wrapper lines where the code begins for the nodes that a launch computes."""
    if launch.kind != "cpp":
        yield launch.line
        return
    for argument in launch.args:
        if argument.type == "tensor" and argument.role != "in":
            lines = assigned.get(argument.buffer, [])
            if at := bisect.bisect_left(lines, launch.line):
                yield lines[at - 1]


def _assignments(source: bytes) -> dict[str, list[int]]:
    """The lines that assign to each variable, ascending."""
    lines: dict[str, list[int]] = {}
    for number, text in enumerate(source.split(b"\n"), 1):
        if match := _ASSIGNED.match(text):
            lines.setdefault(match[1].decode(), []).append(number)
    return lines
