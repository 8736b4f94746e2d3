"""Reads the lines of probes in a file: which launches they are at, and which are none of ours."""

from __future__ import annotations

from rewriter.artifact.types import OpenWrapper
from rewriter.core import markers
from rewriter.instrumentation import options_line
from rewriter.instrumentation.dialect import module_of


def probed_launches(wrapper: OpenWrapper) -> frozenset[int]:
    """The indices of the launches that have a line before or after them."""
    calls = map(module_of(wrapper.language).AT_LAUNCH.match, _marked(wrapper))
    return frozenset(int(match[1]) for match in calls if match)


def count_foreign(wrapper: OpenWrapper) -> int:
    """How many marked lines there are that `instrument` does not write: somebody copied the mark.

    A wrapper that carries the runtime is not looked through, since that may have any line.
    """
    dialect, lines = module_of(wrapper.language), _marked(wrapper)
    if dialect.CARRIED and any(dialect.CARRIED in line for line in lines):
        return 0
    known = (markers.OWN_LINE, options_line.OWN_LINE, dialect.OWN_LINE)
    return sum(not any(pattern.match(line) for pattern in known) for line in lines)


def _marked(wrapper: OpenWrapper) -> list[bytes]:
    return markers.marked_lines(wrapper.source, wrapper.probes.tag) if wrapper.probes else []
