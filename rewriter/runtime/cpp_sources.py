"""Reads the C++ sources of the engine: beside this file, or from a `--standalone` wrapper."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

LIBRARY = "cpp/engine/library.cpp"
KERNEL = "cpp/engine/kernel.h"
CALLS = "cpp/engine/python.cpp"
COMPILED = (LIBRARY, KERNEL, CALLS)
"""The sources that are compiled on the machine where a wrapper runs."""

_INCLUDE = re.compile(r'^#include "(.+)"\n', re.MULTILINE)
_ONCE = "#pragma once\n"


def together(name: str) -> str:
    """The text of a C++ file, with our own headers inserted in place of their `#include`s.

    `name` is the path inside this package. Raises `OSError` if a file is missing.
    """
    return _with_includes(name, set())


def _with_includes(name: str, seen: set[str]) -> str:
    seen.add(name)
    folder = posixpath.dirname(name)

    def included(match: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(folder, match[1]))
        return "" if other in seen else _with_includes(other, seen)

    return _INCLUDE.sub(included, _read(name).replace(_ONCE, ""))


def _read(name: str) -> str:
    # A runtime that is embedded in a wrapper has no files: its loader has the texts.
    here = globals().get("__file__")
    if here is not None:
        return (Path(here).parent / name).read_text(encoding="utf-8")
    loader: Any = globals()["__spec__"].loader
    data: bytes = loader.get_data(name)
    return data.decode()
