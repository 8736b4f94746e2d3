"""Fills the buffers of a wrapper with a pattern before anything is written to them.

What it does is in `memory/watch.py`.
"""

from __future__ import annotations

from . import Probe


class PoisonProbe(Probe):
    summary = "fill buffers when they are allocated, so that reads of unwritten memory show"
    when = "memory"
    memory = frozenset({"allocate"})


PROBE = PoisonProbe
