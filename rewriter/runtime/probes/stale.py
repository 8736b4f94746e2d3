"""Fills memory with a pattern once the wrapper no longer needs its content."""

from . import Probe

PROBE = Probe(
    summary="fill buffers when the wrapper releases them, so that later reads show",
    when="memory",
    memory=frozenset({"release", "reuse"}),
)
