"""What a probed program wrote about its memory: `memory.jsonl` in the directory of a call.

The rows are of two types: damage that a launch did, and what a probe covered. The runtimes
(`rewriter/runtime/memory/rows.py`, `rewriter/runtime/cpp/memory.h`) write them by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.dump.rows import SchemaError, read

FILE = "memory.jsonl"
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class MemoryRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A launch wrote beside a buffer.

    `launch` is the first one after which it was seen, `since` the last one in that call after which
    it was not there; unset for the first. `buffer` is the name under which the memory was
    allocated, by the event `allocated` of the wrapper's table. `distance` counts elements between
    the buffer's edge and the nearest one that was written, `count` those that were; `value` is the
    nearest one as text. `captured` is true in a CUDA graph: of one of its replays.
    """

    event: Literal["memory"]
    probe: Literal["bounds"]
    what: Literal["store out of bounds"]
    launch: _Count
    kernel: str = ""
    since: _Count | UnsetType = UNSET
    buffer: str
    allocated: _Count
    side: Literal["before", "behind"]
    distance: _Count
    count: _Count
    dtype: str
    value: str = ""
    captured: bool = False


class CoverageRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a probe did in a call: `done` is how many buffers it guarded or filled, `skipped` how
    many not, with the reasons in `why`; `launches` is after how many launches it compared."""

    event: Literal["coverage"]
    probe: Literal["bounds", "poison", "stale"]
    done: _Count
    launches: _Count | UnsetType = UNSET
    skipped: _Count = 0
    why: dict[str, _Count] = field(default_factory=dict)


def read_memory(directory: Path) -> tuple[MemoryRow | CoverageRow, ...]:
    """The rows of a call, in the order in which they were written; none where there is no file.

    A last line that was cut off, as by a killed program, is left out. Raises `RewriterError` where
    a line is none that a probed program writes.
    """
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    rows: list[MemoryRow | CoverageRow] = []
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            found = json_text.parse_object(line)
            is_coverage = found.get("event") == "coverage"
            rows.append(read(found, CoverageRow) if is_coverage else read(found, MemoryRow))
        except (SchemaError, ValueError) as error:
            raise RewriterError(
                "corrupt-dump",
                f"{path}:{number}: {error}",
                hint="Record it again: the probes bounds, poison and stale write it.",
            ) from None
    return tuple(rows)
