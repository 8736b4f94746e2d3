"""Launches of invented runs, as verdicts and checks have them."""

from __future__ import annotations

from typing import Any

from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.diagnosis.verification.types import LaunchCheck


def facts(**more: Any) -> dict[str, Any]:
    """What is known of a launch of a run, unless `more` says otherwise."""
    known = {
        "run": "rank0/run0", "step": 1, "launch": 0, "iteration": 0, "kernel": "cpp_fused_log_0",
        "kind": "cpp", "scope": "call", "line": 30, "source_nodes": (), "origins": (),
        "artifact": "c.py",
    }  # fmt: skip
    return known | more


def checked(**more: Any) -> LaunchCheck:
    """A launch that agrees with its graph, unless `more` says otherwise."""
    return LaunchCheck(**facts(**{"outcome": "agrees", "route": "graph", **more}))


def crashed(**more: Any) -> CrashVerdict:
    """The verdict about a launch that was running when its process ended."""
    return CrashVerdict(**facts(**{"rank": 0, "pid": 1, "state": "running", **more}))
