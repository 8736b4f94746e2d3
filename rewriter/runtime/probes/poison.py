"""Fills the buffers of a wrapper with a pattern when they are allocated."""

from . import Probe

PROBE = Probe(
    summary="fill buffers when they are allocated, so that reads of unwritten memory show",
    when="memory",
    memory=frozenset({"allocate"}),
)
