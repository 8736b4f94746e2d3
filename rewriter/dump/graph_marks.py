"""Reads the marks of CUDA graphs: which launches their last replays began and ended.

A process that exited by itself wrote the marks into the dump. Those of a process that was killed
are in the file that it shared with the device: see `rewriter/runtime/cpp/engine/graph_marks.h`.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.types import Json

_FILES = "graph-marks-*.jsonl"
# Only a path that can be nothing else is read, since anybody may have written the dump.
_MEMORY = re.compile(r"/dev/shm/rewriter-marks-\w{1,32}")
_MOST = 1 << 16  # bytes
_LAUNCHES = 20  # bits

Place = tuple[int, int]  # a launch, and its iteration in the call


@dataclass(frozen=True)
class GraphMark:
    """How far the replays on one stream came: of the call `run` that captured them, the launch that
    began last and the one that ended last; `None` if none did."""

    pid: int
    run: str
    stream: int
    began: Place | None
    ended: Place | None

    @property
    def running(self) -> Place | None:
        """The launch that began and did not end."""
        return self.began if self.began != self.ended else None


def read(dump: Path) -> tuple[GraphMark, ...]:
    """The marks of all processes; none if there are none, or a file is damaged."""
    return tuple(mark for path in sorted(dump.glob(_FILES)) for mark in _marks(_rows(path)))


def keep(dump: Path) -> None:
    """Copy the marks of processes that were killed into the dump, and free their memory."""
    for path in dump.glob(_FILES):
        rows = _rows(path)
        words = _shared(rows)
        if words is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json_text.encode({"marks": words}) + "\n")
            with contextlib.suppress(OSError):
                os.unlink(rows[0]["memory"])


def _rows(path: Path) -> list[Json]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        with contextlib.suppress(json_text.JsonError):
            rows.append(json_text.parse_object(line))
    return rows


def _marks(rows: list[Json]) -> Iterator[GraphMark]:
    kept = next((row["marks"] for row in rows if "marks" in row), None)
    words = kept if kept is not None else _shared(rows)
    if not isinstance(words, list):
        return
    for row in rows:
        slot, run = row.get("slot"), row.get("run")
        if isinstance(slot, int) and isinstance(run, str) and 0 <= 2 * slot < len(words) - 1:
            began, ended = _place(words[2 * slot]), _place(words[2 * slot + 1])
            yield GraphMark(rows[0].get("pid", 0), run, row.get("stream", 0), began, ended)


def _shared(rows: list[Json]) -> list[int] | None:
    """The words of the memory that a process shared with the device, if it is still there."""
    memory = rows[0].get("memory") if rows else None
    if not isinstance(memory, str) or not _MEMORY.fullmatch(memory):
        return None
    try:
        descriptor = os.open(memory, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST:
            return None
        data = file.read(_MOST)
    slots = sum("slot" in row for row in rows)
    return array.array("I", data[: 8 * slots]).tolist()


def _place(word: object) -> Place | None:
    if not isinstance(word, int) or word <= 0:
        return None
    return (word & ((1 << _LAUNCHES) - 1)) - 1, word >> _LAUNCHES
