"""The graphs that wrappers were compiled from, as text in a dump: `graphs/SHA256.txt`, by the hash
of the wrapper without probes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rewriter.core import limits
from rewriter.core.errors import RewriterError

FOLDER = "graphs"
_HASH = re.compile(r"[0-9a-f]{64}")


def write(dump: Path, texts: Mapping[str, str]) -> None:
    """Add the graphs of wrappers to a dump. Raises `OSError`."""
    for sha256, text in texts.items():
        if text:
            (dump / FOLDER).mkdir(exist_ok=True)
            (dump / FOLDER / f"{sha256}.txt").write_text(text, encoding="utf-8")


def read(dump: Path, sha256: str) -> str:
    """The graph of a wrapper; empty if the dump has none."""
    if not _HASH.fullmatch(sha256):
        return ""
    try:
        data = limits.read(dump / FOLDER / f"{sha256}.txt", limits.ENTRY_BYTES)
    except (OSError, RewriterError):
        return ""
    return data.decode("utf-8", "replace")
