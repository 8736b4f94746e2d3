"""Puts guard bands around the buffers of a wrapper, and compares them after each launch."""

from . import Probe

PROBE = Probe(
    summary="guard bands around buffers: name the launch that writes outside its buffer",
    when="memory",
    memory=frozenset({"allocate", "launch"}),
)
