"""Recorders of a wrapper with one launch, as lines in it call them."""

from __future__ import annotations

from typing import Any


def recorder_of(probe: str, values: int = 1, **options: Any) -> Any:
    """The recorder of a launch that writes so many values: after `begin`, `after(0, *values)`."""
    from rewriter.runtime import attach

    facts = {"artifact": "w.py", "sha256": "", "version": "0", "when": None, "format": "text"}
    row = {"launch": 0, "kernel": "k", "kind": "triton", "scope": "call", "line": 1}
    row |= {"source_nodes": [], "origins": [], "repeats": True}
    row |= {"after": [["out", f"x{number}"] for number in range(values)]}
    about = {**facts, "probes": [probe], "values": False, "quiet": True, **options}
    return attach(about, [row])
