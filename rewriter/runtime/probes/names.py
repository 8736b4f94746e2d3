"""Prints the name of each launch, flushed, before it runs: the last one printed is the culprit."""

from . import Probe

PROBE = Probe(
    summary="print the kernel's name before each launch, flushed",
    when="before",
)
