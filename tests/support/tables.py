"""Tables of wrappers, as `rewriter.runtime.attach` takes them."""

from __future__ import annotations

from typing import Any


def options(*probes: str, **changes: Any) -> dict[str, Any]:
    return {
        "artifact": "w.py",
        "sha256": "",
        "version": "0",
        "probes": list(probes),
        "when": None,
        "format": "text",
        "values": False,
        **changes,
    }


def row(launch: int = 0, kernel: str = "k", **changes: Any) -> dict[str, Any]:
    return {
        "launch": launch,
        "kernel": kernel,
        "kind": "cpp",
        "scope": "call",
        "line": 10 + launch,
        "source_nodes": [],
        "origins": [],
        "repeats": False,
        **changes,
    }
