"""Where this tool keeps what it built, for the user who built it."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REWRITER_CACHE_DIR"
ENGINE = "REWRITER_ENGINE_DIR"
VARIABLES = (VARIABLE, ENGINE)


def cache_directory(of: str) -> Path | None:
    """The directory for one kind of files: in `REWRITER_CACHE_DIR` or the user's, None if off.

    `REWRITER_ENGINE_DIR` is that of the engine, whatever the other says.
    """
    if of == "engine" and (own := os.environ.get(ENGINE, "")):
        return Path(own).absolute()
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off":
        return None
    if named:
        return Path(named).absolute() / of
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path("~/.cache").expanduser()
    # Nobody's home: a path that starts with ~ would be one of the working directory.
    return base / "rewriter" / of if base.is_absolute() else None
