"""Fills memory with a pattern once the wrapper is through with what is in it.

What it does is in `memory/watch.py`.
"""

from __future__ import annotations

from . import Probe


class StaleProbe(Probe):
    summary = "fill buffers when the wrapper releases them, so that later reads show"
    when = "memory"
    memory = frozenset({"reuse", "release"})


PROBE = StaleProbe
