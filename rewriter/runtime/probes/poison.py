"""Fills the buffers of a wrapper with a pattern when they are allocated.

`memory/watch.py` does the work.
"""

from __future__ import annotations

from . import Probe


class PoisonProbe(Probe):
    summary = "fill buffers when they are allocated, so that reads of unwritten memory show"
    when = "memory"
    memory = frozenset({"allocate"})


PROBE = PoisonProbe
