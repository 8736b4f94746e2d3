"""Finds Inductor's cache."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from rewriter.core.errors import RewriterError

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def directory(wanted: str | Path | None) -> Path:
    """The requested or default cache as an absolute path; it may not exist."""
    path = wanted or os.environ.get(VARIABLE) or _default()
    return Path(os.path.abspath(path))


def existing(wanted: str | Path | None) -> Path:
    """The requested or default cache. Raises `RewriterError` if it does not exist."""
    path = directory(wanted)
    if not path.is_dir():
        raise RewriterError(
            "no-cache",
            f"{path} is no cache of Inductor's: "
            + ("it is no directory" if os.path.lexists(path) else "no such directory"),
            hint=f"Pass --dir, or set {VARIABLE} as the program has it. A program makes its cache "
            "when it first compiles.",
        )
    return path


def _default() -> str:
    """As `default_cache_dir` in torch/_inductor/runtime/cache_dir_utils.py."""
    try:
        import getpass

        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    user = re.sub(r'[\\/:*?"<>|]', "_", user)
    return os.path.join(tempfile.gettempdir(), f"torchinductor_{user}")
