"""Puts guard bands around the buffers of a wrapper, and compares them after each launch.

`memory/watch.py` does the work.
"""

from __future__ import annotations

from . import Probe


class BoundsProbe(Probe):
    summary = "guard bands around buffers: name the launch that writes outside its buffer"
    when = "memory"
    memory = frozenset({"allocate", "launch"})


PROBE = BoundsProbe
