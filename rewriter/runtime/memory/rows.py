"""Formats findings of the memory probes: printed lines, and rows of `memory.jsonl` in the dump."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..events_file import write_all
from ..text import start

if TYPE_CHECKING:
    from ..dump import CallDirectory
    from ..printer import Printer

FILE = "memory.jsonl"


def encoded(facts: Mapping[str, Any]) -> str:
    """A row as a line of JSON."""
    return json.dumps(facts) + "\n"


def coverage_row(probe: str, done: int, skipped: Mapping[str, int], launches: int | None) -> str:
    """A row about how many buffers a probe guarded or filled in a call, and why it skipped others.

    `skipped` has the number of skipped buffers by reason. `launches` is the number of launches
    after which bands were compared, None for a probe without bands.
    """
    facts: dict[str, Any] = {"event": "coverage", "probe": probe, "done": done}
    if launches is not None:
        facts["launches"] = launches
    if skipped:
        facts |= {"skipped": sum(skipped.values()), "why": dict(skipped)}
    return encoded(facts)


def store_line(printer: Printer, call: int, facts: Mapping[str, Any]) -> str:
    """A line: `#12 KERNEL wrote outside buf3: 1 element, the nearest right behind its end, 3.5`."""
    count, distance, side = facts["count"], facts["distance"], facts["side"]
    elements = "1 element" if count == 1 else f"{count} elements"
    where = {"behind": "its end", "before": "its start"}[side]
    away = f"right {side}" if not distance else f"{distance} elements {side}"
    value = f", {facts['value']}" if "value" in facts else ""
    kernel = f" {facts['kernel']}" if "kernel" in facts else ""
    return (
        f"{start(printer.rank, printer.label, call)} #{facts['launch']}{kernel} wrote outside "
        f"{facts['buffer']}: {elements}, the nearest {away} {where}{value}\n"
    )


def write_rows(directory: CallDirectory, rows: str) -> None:
    """Append rows to `memory.jsonl` without buffering: the program may crash next."""
    data = rows.encode()
    if not data:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(f"{directory.name}/{FILE}", flags, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
