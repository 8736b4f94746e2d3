"""Writes what was compared: a line for each call into `eager/PID.jsonl` of the dump."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

DUMP, FOLDER = "REWRITER_DUMP", "eager"


class NotComparedError(Exception):
    """A call cannot be compared, and why."""


def in_short(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def reason(error: Exception) -> str:
    """Why a call cannot be compared."""
    return str(error) if isinstance(error, NotComparedError) else in_short(error)


@contextlib.contextmanager
def noted(about: dict[str, Any], part: str) -> Iterator[None]:
    """Compare in this block. What prevents it is written down; the program goes on."""
    try:
        yield
    except Exception as error:
        write({**about, "part": part, "reason": reason(error)})


def write(row: dict[str, Any]) -> None:
    """Append a line; without a dump, or on a full disk, nothing is said of this call."""
    dump = os.environ.get(DUMP)
    if not dump:
        return
    try:
        folder = os.path.join(dump, FOLDER)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), **row}) + "\n")
    except OSError:
        return
