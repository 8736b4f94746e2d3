"""Makes runs for readers of a dump from the rings of the probe `record`.

The calls of a process that has ended are written as runs into the dump, and replace its ring. A
running process keeps its ring, and in a dump that cannot be written all rings stay: then the runs
are written into a temporary directory with links to the rest of the dump.

Each run is a directory, and a ring may have tens of thousands of small calls, so only the last ones
of each process become runs. Their ring stays in the dump under another name, since a reader may ask
for more calls later.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rewriter.core import json_text, limits, locks
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump import flight, rows
from rewriter.dump.document_files import ENDED, EVENTS, LAUNCHES, RUN, document_text
from rewriter.dump.documents import EndedFile, EndedStatus, RunFacts, RunLaunches
from rewriter.dump.ring import RingCall, RingContent, read_ring

VARIABLE = "REWRITER_RECORD_CALLS"
_USUAL_CALLS = 1000  # of each process
_MOST_NOTES = 3
# Files beside a ring: the lock for all rings, runs that are not in their place yet, a mark that all
# of them are written, a ring whose last calls became runs, and a file with their number and names,
# sentences for readers, and whether the process was running.
_LOCK, _STAGED, _DONE, _KEPT, _PART = ".lock", "runs", "done", "ring.taken", "part"
_NOTE, _RUNNING = "note", "running"
_LATEST = (1 << 63) - 1  # nanoseconds: the largest time of a file
_KILLED, _RAISED = "it did not end by itself", "an exception left the launch"
_WELL = EndedStatus(code=0, message="it ended by itself; its exit code is not recorded")


def with_runs(path: Path) -> Path:
    """The directory that has all runs of the dump at `path`: usually `path` itself.

    Raises `RewriterError` if the variable `REWRITER_RECORD_CALLS` is not a number.
    """
    around = (path, *path.absolute().parents[:2])
    root = next((x for x in around if _rings(x) or _kept_rings(x)), None)
    if root is None:
        return path
    if root == path.absolute() or root == path:
        return _with_runs(path)
    # For a part of a dump, runs made from rings that are still written are not included.
    _with_runs(root)
    return path


def notes(path: Path) -> str:
    """What a reader of the dump at `path` needs to know, in sentences; usually nothing."""
    found: dict[str, None] = {}
    for file in sorted((path / flight.FOLDER).glob(f"*/{_NOTE}")):
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(file.read_text(encoding="utf-8").splitlines())
    shown = [*found][:_MOST_NOTES]
    if len(found) > len(shown):
        shown.append(f"So it is of {len(found) - len(shown):,} more.")
    return " ".join(shown)


def notes_on(content: RingContent) -> Iterator[str]:
    """What a reader of the runs of a ring needs to know, in sentences."""
    if len(content.calls) < content.total:
        yield (
            f"Of process {content.pid} the last {len(content.calls):,} of {content.total:,} "
            f"recorded calls are shown; {VARIABLE}={content.total} shows all."
        )
    if content.lost_marks:
        yield (
            f"More than {flight.SLOTS} threads of process {content.pid} were in launches at once: "
            f"which ones is known of {flight.SLOTS}, and the one at fault may be another."
        )


def was_running(path: Path) -> bool:
    """Whether the dump at `path` has calls of a process that was running when they were read or
    copied."""
    return next((path / flight.FOLDER).glob(f"*/{_RUNNING}"), None) is not None


def unreadable_ring(path: Path) -> Path | None:
    """A ring in the dump at `path` that cannot be read, if there is one."""
    return next((ring for ring in _rings(path) if read_ring(ring) is None), None)


def _rings(root: Path) -> list[Path]:
    found = (root / flight.FOLDER).glob(f"*/{flight.RING}")
    return sorted(ring for ring in found if ring.is_file())


def _kept_rings(root: Path) -> list[Path]:
    """The rings whose last calls became runs."""
    return sorted((root / flight.FOLDER).glob(f"*/{_KEPT}"))


def _wanted_calls() -> int:
    """How many calls of each process become runs."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _USUAL_CALLS
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise RewriterError(
            "bad-number",
            f"{VARIABLE} is {text!r}",
            hint="Expected the number of last calls to show for each process, at least 1.",
        )
    return int(text)


def _with_runs(root: Path) -> Path:
    count = _wanted_calls()
    shown: list[Path] = []
    try:
        with (root / flight.FOLDER / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for ring in _rings(root):
                if _is_written(ring):
                    shown.append(ring)
                else:
                    _replace_by_runs(ring, root, count)
    except OSError:
        shown = _rings(root)  # the dump cannot be written to
    shown += [ring for ring in _kept_rings(root) if _runs_made(ring)[0] < count]
    return _temporary_dump(root, shown, count) if shown else root


def _is_written(ring: Path) -> bool:
    """Whether the process of a ring is running: it holds a lock on the file."""
    with ring.open("rb") as file:
        return not locks.take(file.fileno())


def _runs_made(ring: Path) -> tuple[int, list[str]]:
    """How many calls were wanted when a kept ring was converted to runs, and the runs' names."""
    try:
        number, *names = ring.with_name(_PART).read_text(encoding="utf-8").splitlines()
        return int(number), names
    except (OSError, ValueError):
        return _USUAL_CALLS, []


def _replace_by_runs(ring: Path, root: Path, count: int) -> None:
    """Write the last `count` calls of a ring as runs that replace the ring; completes the work of
    an earlier reader that was interrupted.

    A ring that cannot be read stays: another version of this program may read it.
    """
    staged, done, part = (ring.with_name(name) for name in (_STAGED, _DONE, _PART))
    if not done.exists():
        shutil.rmtree(staged, ignore_errors=True)
        content = read_ring(ring)
        if content is None:
            return
        chosen = content.last(count)
        names = write_runs(chosen, read_tables(root), staged, beside=root)
        write_process_end(content, root)
        _write_notes(chosen, ring.parent, is_running=content.is_copy)
        if len(chosen.calls) < content.total:
            part.write_text("\n".join((str(count), *names)), encoding="utf-8")
        done.touch()
    for run in sorted(staged.glob("rank*/run*")):
        place = root / run.parent.name / run.name
        place.parent.mkdir(exist_ok=True)
        run.rename(place)
    if part.exists():
        ring.rename(ring.with_name(_KEPT))
    else:
        ring.unlink()
    shutil.rmtree(staged)
    done.unlink()
    with contextlib.suppress(OSError):  # not empty if it has a note
        ring.parent.rmdir()


def _temporary_dump(root: Path, rings: Sequence[Path], count: int) -> Path:
    """Make a dump of links to the contents of the one at `root`, and of runs from these rings as
    they are now: rings that are still written, rings in a dump that cannot be written, and kept
    rings of which more calls are wanted."""
    dump = Path(tempfile.mkdtemp(prefix="rewriter-recorded-"))
    atexit.register(shutil.rmtree, dump, ignore_errors=True)
    contents = [(ring, content) for ring in rings if (content := read_ring(ring)) is not None]
    again = {run for ring, _ in contents if ring.name == _KEPT for run in _runs_made(ring)[1]}
    for entry in root.iterdir():
        if entry.name.startswith("rank") and entry.is_dir():
            (dump / entry.name).mkdir()
            for run in entry.iterdir():
                if f"{entry.name}/{run.name}" not in again:
                    (dump / entry.name / run.name).symlink_to(run.absolute())
        elif entry.name != flight.FOLDER:
            (dump / entry.name).symlink_to(entry.absolute())
    for note in (root / flight.FOLDER).glob("*/*"):
        if note.name in (_NOTE, _RUNNING) and note.parent not in {x.parent for x, _ in contents}:
            place = dump / flight.FOLDER / note.parent.name
            place.mkdir(parents=True, exist_ok=True)
            (place / note.name).symlink_to(note.absolute())
    tables = read_tables(root)
    for ring, content in contents:
        chosen = content.last(count)
        write_runs(chosen, tables, dump, beside=dump)
        is_running = content.is_copy or (ring.name == flight.RING and _is_written(ring))
        _write_notes(chosen, dump / flight.FOLDER / ring.parent.name, is_running=is_running)
        if ring.name == flight.RING and not is_running:
            write_process_end(content, dump)
    return dump


def _write_notes(content: RingContent, folder: Path, *, is_running: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if is_running:
        (folder / _RUNNING).touch()
    if lines := list(notes_on(content)):
        (folder / _NOTE).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")


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
