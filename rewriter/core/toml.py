"""Reads TOML files with every supported Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises `ValueError` if it is invalid."""
    return tomllib.loads(file.read_text(encoding="utf-8"))
