"""The user's cache directory, where this tool keeps the libraries that it compiled."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REWRITER_CACHE_DIR"


def cache_directory(of: str) -> Path | None:
    """The directory for files of the kind `of`, such as "engine"; None if nothing is to be kept.

    It lies in `REWRITER_CACHE_DIR`, or else in the user's cache directory; the value `off` turns
    caching off.
    """
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off":
        return None
    if named:
        return Path(named).absolute() / of
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path("~/.cache").expanduser()
    # Without a home directory ~ stays as it is, and would name a folder in the working directory.
    return base / "rewriter" / of if base.is_absolute() else None
