"""Writes what was compared: a line for each call into `eager/PID.jsonl` of the dump."""

from __future__ import annotations

import json
import os
from typing import Any

DUMP, FOLDER = "REWRITER_DUMP", "eager"


class NotComparedError(Exception):
    """A call cannot be compared, and why."""


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
