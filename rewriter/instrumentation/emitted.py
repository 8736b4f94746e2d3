"""Reads the lines of probes in a file: which launches they belong to, and which are not ours."""

from __future__ import annotations

from rewriter.artifact.types import Wrapper
from rewriter.core import markers
from rewriter.instrumentation import options_line
from rewriter.instrumentation.dialect import class_of


def probed_launches(wrapper: Wrapper) -> frozenset[int]:
    """The indices of the launches with a line before or after them."""
    calls = map(class_of(wrapper.language).at_launch.match, _marked(wrapper))
    return frozenset(int(match[1]) for match in calls if match)


def count_foreign(wrapper: Wrapper) -> int:
    """The number of marked lines that `instrument` does not write: somebody copied the mark.

    It is 0 for a wrapper whose marked lines hold the runtime, as these may be any lines.
    """
    dialect, lines = class_of(wrapper.language), _marked(wrapper)
    if dialect.carried and any(dialect.carried in line for line in lines):
        return 0
    known = (markers.OWN_LINE, options_line.OWN_LINE, dialect.own_line)
    return sum(not any(pattern.match(line) for pattern in known) for line in lines)


def _marked(wrapper: Wrapper) -> list[bytes]:
    return markers.marked_lines(wrapper.source, wrapper.probes.tag) if wrapper.probes else []
