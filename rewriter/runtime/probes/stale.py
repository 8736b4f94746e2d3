"""Fills memory with a pattern once the wrapper no longer needs its content.

`memory/watch.py` does the work.
"""

from __future__ import annotations

from . import Probe


class StaleProbe(Probe):
    summary = "fill buffers when the wrapper releases them, so that later reads show"
    when = "memory"
    memory = frozenset({"reuse", "release"})


PROBE = StaleProbe
