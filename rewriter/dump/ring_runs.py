"""Writes the calls of a ring as runs of a dump, and how the process of the ring ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from rewriter.core import json_text, limits
from rewriter.core.types import Json
from rewriter.dump import rows
from rewriter.dump.document_files import ENDED, EVENTS, LAUNCHES, RUN, document_text
from rewriter.dump.documents import EndedFile, EndedStatus, RunFacts, RunLaunches
from rewriter.dump.ring import RingCall, RingContent
from rewriter.runtime import flight

_LATEST = (1 << 63) - 1  # nanoseconds: the largest time of a file
_KILLED, _RAISED = "it did not end by itself", "an exception left the launch"
_WELL = EndedStatus(code=0, message="it ended by itself; its exit code is not recorded")


def read_tables(root: Path) -> Mapping[int, Json]:
    """The tables of the wrappers whose rings are in a dump, by their numbers."""
    tables: dict[int, Json] = {}
    for path in sorted((root / flight.FOLDER / flight.TABLES).glob("*.json")):
        # Calls without a valid table still have their rows.
        with contextlib.suppress(OSError, ValueError):
            content = json_text.parse_object(limits.read(path, limits.JSON_BYTES))
            known = {"run": content.get("run", {}), "table": content.get("table", {})}
            rows.read(known["run"], RunFacts)
            rows.read(known["table"], RunLaunches)
            tables[int(path.stem, 16)] = known
    return tables


def write_runs(
    content: RingContent, tables: Mapping[int, Json], into: Path, *, beside: Path
) -> list[str]:
    """Write the calls as runs in `into`, and return their names.

    A run has the number of its call, or the next one that is free in `into` and the dump `beside`.
    """
    rank = f"rank{content.rank}"
    folder = into / rank
    folder.mkdir(parents=True, exist_ok=True)
    following: dict[int, int] = {}
    written: dict[int, Path] = {}
    names: list[str] = []
    for call in content.calls:
        known = tables.get(call.table, {})
        table = known.get("table", {})
        number = max(call.number, following.get(call.table, 0))
        while (folder / f"run{number}").exists() or (beside / rank / f"run{number}").exists():
            number += 1
        following[call.table] = number + 1
        run = folder / f"run{number}"
        run.mkdir()
        own = {"call": call.number, "pid": content.pid, "thread": call.thread}
        facts = {**known.get("run", {}), **own, "started": call.started / 1e9}
        _write_table(run / LAUNCHES, table, written, call.table)
        (run / RUN).write_text(json_text.encode(facts, indent=1) + "\n", encoding="utf-8")
        events = run / EVENTS
        ended_well = content.has_ended and not content.message
        events.write_bytes(b"".join(_with_mark(call, table, ended_well=ended_well)))
        moment = min(max(call.last, 0), _LATEST)
        os.utime(events, ns=(moment, moment))
        names.append(f"{rank}/{run.name}")
    return names


def _write_table(path: Path, table: Json, written: dict[int, Path], number: int) -> None:
    """Write the table of launches: all calls of a wrapper get hard links to one file, if
    possible."""
    if number in written:
        with contextlib.suppress(OSError):
            os.link(written[number], path)
            return
    path.write_text(json_text.encode(table, indent=1) + "\n", encoding="utf-8")
    written[number] = path


def _with_mark(call: RingCall, table: Json, *, ended_well: bool) -> list[bytes]:
    """The rows of a call, and rows for how far its thread came.

    If the process ended well, the thread was in no launch, and no such rows are needed.
    """
    mark, rows = call.mark, call.rows
    if mark is None or mark.began is None or (ended_well and not call.has_open_launch):
        return rows
    before = _row(mark.began, "before", table)
    if call.has_open_launch:
        return [*rows, before]
    of_last = len(rows)
    start = _row(mark.began, "after", table)[:-2]
    while of_last and rows[of_last - 1].startswith(start):
        of_last -= 1
    if of_last < len(rows):
        return [*rows[:of_last], before, *rows[of_last:]]
    # The launch ended, but its values were not yet fetched from the device.
    return [*rows, before, start + b"}\n"]


def _row(which: tuple[int, int], phase: str, table: Json) -> bytes:
    launch, iteration = which
    of_table: Json = next((x for x in table.get("launches", ()) if x.get("launch") == launch), {})
    row: Json = {"launch": launch, "phase": phase, "kernel": of_table.get("kernel", "")}
    if iteration or of_table.get("repeats"):
        row["iteration"] = iteration
    return (json_text.encode(row) + "\n").encode()


def write_process_end(content: RingContent, root: Path) -> None:
    """Write `ended.json` from the content of a ring, unless it exists. If there are several
    processes, the first one that did not end well counts."""
    if content.is_copy:
        return
    status = _status(content)
    path = root / ENDED
    if status != _WELL and _says_well(path):
        path.unlink()
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(document_text(EndedFile(ended=status)))


def _status(content: RingContent) -> EndedStatus:
    if not content.has_ended:
        return EndedStatus(code=1 if content.message else None, message=_KILLED)
    if content.message:
        return EndedStatus(code=1, message=content.message)
    if content.calls and content.calls[-1].has_open_launch:
        return EndedStatus(code=None, message=_RAISED)
    return _WELL


def _says_well(path: Path) -> bool:
    """Whether the file says that a process ended by itself, and nothing else."""
    try:
        return rows.read(json_text.parse_object(path.read_bytes()), EndedFile).ended == _WELL
    except (OSError, ValueError):
        return False
