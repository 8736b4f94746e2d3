"""Makes runs of a dump of what the probe `record` left in its rings.

Of a process that is gone they take the place of its ring. One that still runs keeps its ring, and
so do all where the dump cannot be written: then they are put into a directory of their own, with
links to the rest of the dump, which goes with the reader. What processes write is in
`rewriter/runtime/flight.py`.

A call is a directory, and a ring may have tens of thousands of small ones: runs are made of the
last calls of each process. The ring stays then, under another name, for who asks for more.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump import rows
from rewriter.dump.documents import EndedFile, EndedStatus, RunFacts, RunLaunches
from rewriter.runtime import flight
from rewriter.runtime.flight import BEGIN, DATA_AT, HEADER, RECORD, ROWS, SLOT

_EVENTS, _RUN, _LAUNCHES = "events.jsonl", "run.json", "launches.json"
_ENDED = "ended.json"
_LOCK, _STAGED, _DONE = ".lock", "runs", "done"
_TAKEN, _NOTE, _PART, _RUNNING = "ring.taken", "note", "part", "running"
VARIABLE = "REWRITER_RECORD_CALLS"
_CALLS = 1000  # of each process
_NOTES = 3  # that are said
_LATEST = (1 << 63) - 1  # nanoseconds
_KILLED, _LEFT = "it did not end by itself", "an exception left the launch"
_BY_ITSELF = "it ended by itself; its exit code is not recorded"
_WELL = EndedStatus(code=0, message=_BY_ITSELF)


@dataclass(frozen=True)
class Mark:
    """Where a thread was in a call: the launch that began last, with its iteration, and the one
    that ended last; `None` where none did."""

    began: tuple[int, int] | None
    ended: tuple[int, int] | None


@dataclass
class RecordedCall:
    """A call as a ring has it. `is_whole` tells whether its beginning is there. Times are those of
    the clock on the wall, in nanoseconds."""

    number: int
    thread: int
    table: int
    started: int
    last: int
    is_whole: bool = False
    rows: list[bytes] = field(default_factory=list)
    mark: Mark | None = None

    @property
    def is_left(self) -> bool:
        """Whether its thread began a launch and was never through with it."""
        return self.mark is not None and self.mark.began != self.mark.ended


@dataclass(frozen=True)
class Recording:
    """What is in a ring. `message` is the text of the exception that ended the process. A ring that
    `is_copy` is of a process that went on. `all_calls` are those that the ring has, `calls` the
    last ones that were asked for, and those that a thread was in. `lost_marks` counts how often a
    thread gave up its marks for another one while it was in a launch."""

    pid: int
    rank: int
    has_ended: bool
    is_copy: bool
    message: str
    calls: tuple[RecordedCall, ...]
    all_calls: int = 0
    lost_marks: int = 0

    def last(self, count: int) -> Recording:
        """The same with so many calls."""
        rest = self.calls[: max(0, len(self.calls) - count)]
        left = tuple(call for call in rest if call.is_left)
        return replace(self, calls=left + self.calls[len(rest) :])

    @property
    def notes(self) -> Iterator[str]:
        """What a reader of its runs has to know, in sentences."""
        if len(self.calls) < self.all_calls:
            yield (
                f"Of process {self.pid} the last {len(self.calls):,} of {self.all_calls:,} "
                f"recorded calls are shown; {VARIABLE}={self.all_calls} shows all."
            )
        if self.lost_marks:
            yield (
                f"More than {flight.SLOTS} threads of process {self.pid} were in launches at once: "
                f"which ones is known of {flight.SLOTS}, and the one at fault may be another."
            )


def settled(path: Path) -> Path:
    """A directory with all runs of the dump at `path`: mostly this itself."""
    around = (path, *path.absolute().parents[:2])
    root = next((x for x in around if _rings(x) or _taken(x)), None)
    if root is None:
        return path
    if root == path.absolute() or root == path:
        return _settled(path)
    _settled(root)  # a part of a dump: what is made of rings that are still written is not in it
    return path


def _rings(root: Path) -> list[Path]:
    found = (root / flight.FOLDER).glob(f"*/{flight.RING}")
    return sorted(ring for ring in found if ring.is_file())


def notes(path: Path) -> str:
    """What a reader of the dump at `path` has to know, in sentences; mostly nothing."""
    found: dict[str, None] = {}
    for file in sorted((path / flight.FOLDER).glob(f"*/{_NOTE}")):
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(file.read_text(encoding="utf-8").splitlines())
    shown = [*found][:_NOTES]
    if len(found) > len(shown):
        shown.append(f"So it is of {len(found) - len(shown):,} more.")
    return " ".join(shown)


def was_running(path: Path) -> bool:
    """Whether the dump at `path` has what a process recorded that went on."""
    return next((path / flight.FOLDER).glob(f"*/{_RUNNING}"), None) is not None


def wanted_calls() -> int:
    """Of how many calls of a process runs are made. Raises `RewriterError`."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _CALLS
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise RewriterError(
            "bad-number",
            f"{VARIABLE} is {text!r}",
            hint="Expected how many of the last calls of a process are to be shown, from 1 on.",
        )
    return int(text)


def unread(path: Path) -> Path | None:
    """A ring in the dump at `path` that cannot be read, if there is one."""
    return next((ring for ring in _rings(path) if read_ring(ring) is None), None)


def _settled(root: Path) -> Path:
    count = wanted_calls()
    shown: list[Path] = []
    try:
        with (root / flight.FOLDER / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for ring in _rings(root):
                if _is_written(ring):
                    shown.append(ring)
                else:
                    _take(root, ring, count)
    except OSError:
        shown = _rings(root)  # it cannot be written to
    shown += [ring for ring in _taken(root) if _made_of(ring)[0] < count]
    return _view(root, shown, count) if shown else root


def _taken(root: Path) -> list[Path]:
    """The rings of which runs of the last calls were made."""
    return sorted((root / flight.FOLDER).glob(f"*/{_TAKEN}"))


def _made_of(ring: Path) -> tuple[int, list[str]]:
    """How many of the last calls of a ring were asked for when runs were made of it, and these."""
    try:
        number, *made = ring.with_name(_PART).read_text(encoding="utf-8").splitlines()
        return int(number), made
    except (OSError, ValueError):
        return _CALLS, []


def _is_written(ring: Path) -> bool:
    """Whether the process lives: it has a lock on its ring."""
    with ring.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _take(root: Path, ring: Path, count: int) -> None:
    """Make runs of a ring in its place, of so many calls: all of them, also where this was
    interrupted before. What cannot be read stays as it is: another version may, or who has the rest
    of it."""
    staged, done, part = (ring.with_name(name) for name in (_STAGED, _DONE, _PART))
    if not done.exists():
        shutil.rmtree(staged, ignore_errors=True)
        recording = read_ring(ring)
        if recording is None:
            return
        chosen = recording.last(count)
        made = _write_runs(chosen, _tables(root), root, staged)
        _write_ended(recording, root)
        _write_note(chosen, ring.parent, is_running=recording.is_copy)
        if len(chosen.calls) < recording.all_calls:
            part.write_text("\n".join((str(count), *made)), encoding="utf-8")
        done.touch()
    for run in sorted(staged.glob("rank*/run*")):
        place = root / run.parent.name / run.name
        place.parent.mkdir(exist_ok=True)
        run.rename(place)
    if part.exists():
        ring.rename(ring.with_name(_TAKEN))
    else:
        ring.unlink()
    shutil.rmtree(staged)
    done.unlink()
    with contextlib.suppress(OSError):  # it has a note
        ring.parent.rmdir()


def _view(root: Path, rings: Sequence[Path], count: int) -> Path:
    """The dump with what is in these rings, as it is now: those that are still written, those of a
    dump that cannot be, and those of which more calls are asked for than were made into runs."""
    view = Path(tempfile.mkdtemp(prefix="rewriter-recorded-"))
    atexit.register(shutil.rmtree, view, ignore_errors=True)
    readings = [(ring, recording) for ring in rings if (recording := read_ring(ring)) is not None]
    again = {run for ring, _ in readings if ring.name == _TAKEN for run in _made_of(ring)[1]}
    for entry in root.iterdir():
        if entry.name.startswith("rank") and entry.is_dir():
            (view / entry.name).mkdir()
            for run in entry.iterdir():
                if f"{entry.name}/{run.name}" not in again:
                    (view / entry.name / run.name).symlink_to(run.absolute())
        elif entry.name != flight.FOLDER:
            (view / entry.name).symlink_to(entry.absolute())
    tables = _tables(root)
    for note in (root / flight.FOLDER).glob("*/*"):
        if note.name in (_NOTE, _RUNNING) and note.parent not in {x.parent for x, _ in readings}:
            place = view / flight.FOLDER / note.parent.name
            place.mkdir(parents=True, exist_ok=True)
            (place / note.name).symlink_to(note.absolute())
    for ring, recording in readings:
        chosen = recording.last(count)
        _write_runs(chosen, tables, view, view)
        is_running = recording.is_copy or (ring.name == flight.RING and _is_written(ring))
        _write_note(chosen, view / flight.FOLDER / ring.parent.name, is_running=is_running)
        if ring.name == flight.RING and not is_running:
            _write_ended(recording, view)
    return view


def _write_note(recording: Recording, folder: Path, *, is_running: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if is_running:
        (folder / _RUNNING).touch()
    if lines := list(recording.notes):
        (folder / _NOTE).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")


def read_ring(path: Path) -> Recording | None:
    """What is in a ring; `None` where it is none, or was not begun. A process may go on to write it
    meanwhile."""
    with path.open("rb") as file:
        head = _header(file.read(HEADER.size))
        if head is None:
            return None
        file.seek(0)
        data = file.read(DATA_AT + head.capacity)
        file.seek(0)
        after = _header(file.read(HEADER.size))
    if after is None or len(data) < DATA_AT + head.capacity:
        return None
    calls: dict[int, RecordedCall] = {}
    for call, found in _records(data, head.capacity, after.tail, head.head):
        to_wall = head.wall - head.clock
        time = found.time + to_wall
        one = calls.setdefault(
            call, RecordedCall(found.number, found.thread, found.table, time, time)
        )
        one.last = max(one.last, time)
        one.is_whole = one.is_whole or found.kind == BEGIN
        if found.kind == ROWS:
            one.rows += found.rows.splitlines(keepends=True)
    for slot in range(min(head.slots, flight.SLOTS)):
        _add_mark(calls, data, slot, head.wall - head.clock)
    message = data[flight.MESSAGE_AT : flight.HEADER_BYTES].partition(b"\0")[0]
    kept = [calls[call] for call in sorted(calls)]
    if any(call.is_whole for call in kept):
        kept = [call for call in kept if call.is_whole or call.mark is not None]
    text = message.decode("utf-8", "replace")
    has_ended, is_copy = head.state == flight.ENDED, head.state == flight.COPIED
    (lost_marks,) = flight.LOST.unpack_from(data, flight.LOST_AT)
    return Recording(
        head.pid, head.rank, has_ended, is_copy, text, tuple(kept), len(kept), lost_marks
    )


def rings_of(pid: int) -> list[Path]:
    """The rings that a process of this machine writes. Raises `OSError` where it cannot be seen."""
    mapped = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    # The system writes a line break so, and has lines without it.
    names = (line.partition("/")[2].replace("\\012", "\n") for line in mapped.split("\n"))
    paths = set(names)
    found = (Path(f"/{path}") for path in sorted(paths) if path.endswith(f"/{flight.RING}"))
    rings = (x for x in found if x.parents[1].name == flight.FOLDER and x.is_file())
    # A fork has the ring of the process that it is made of, and writes nothing to it.
    own = _own_number(pid)
    return [x for x in rings if (head := _read_header(x)) is None or head.pid == own]


def _own_number(pid: int) -> int:
    """The number that a process has for itself: in a container it is another one."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _read_header(ring: Path) -> _Header | None:
    with ring.open("rb") as file:
        return _header(file.read(HEADER.size))


def copy_ring(ring: Path, into: Path) -> None:
    """Put what a process has recorded until now into another dump, which may have others' already.
    The process does not notice."""
    root = ring.parents[2]
    with ring.open("rb") as file:
        data = bytearray(file.read())
        file.seek(0)
        after = file.read(HEADER.size)
    fields = list(HEADER.unpack_from(data))
    fields[4], fields[5], fields[6] = HEADER.unpack(after)[4], 0, flight.COPIED
    HEADER.pack_into(data, 0, *fields)
    manifest, tables = "manifest.json", Path(flight.FOLDER, flight.TABLES)
    if not (into / manifest).exists():
        shutil.copy(root / manifest, into / manifest)
    (into / tables).mkdir(parents=True, exist_ok=True)
    for table in (root / tables).glob("*.json"):
        shutil.copy(table, into / tables / table.name)
    own = into / flight.FOLDER / ring.parent.name
    for number in itertools.count(1):  # a process may record into several dumps
        with contextlib.suppress(FileExistsError):
            own.mkdir()
            break
        own = own.with_name(f"{ring.parent.name}.copy{number}")
    (own / flight.RING).write_bytes(data)


@dataclass(frozen=True)
class _Header:
    capacity: int
    head: int
    tail: int
    state: int
    pid: int
    rank: int
    slots: int
    wall: int
    clock: int


def _header(data: bytes) -> _Header | None:
    if len(data) < HEADER.size:
        return None
    (magic, version, capacity, head, tail, _, state, _, pid, _, rank, slots, wall, clock) = (
        HEADER.unpack(data)
    )
    if magic != flight.MAGIC or version != flight.VERSION or not 0 < capacity <= flight.MOST:
        return None
    return _Header(capacity, head, tail, state, pid, rank, slots, wall, clock)


@dataclass(frozen=True)
class _Record:
    kind: int
    number: int
    thread: int
    time: int
    table: int
    rows: bytes


def _records(data: bytes, capacity: int, tail: int, head: int) -> Iterator[tuple[int, _Record]]:
    """The records from the oldest on, with their calls; up to one that is none."""

    def at(place: int, size: int) -> bytes:
        start = DATA_AT + place % capacity
        first = data[start : min(start + size, DATA_AT + capacity)]
        return first + data[DATA_AT : DATA_AT + size - len(first)]

    while 0 <= head - tail <= capacity and head - tail >= RECORD.size:
        size, kind, padding, call, number, thread, time, table = RECORD.unpack(
            at(tail, RECORD.size)
        )
        if size % 8 or not RECORD.size + padding <= size <= head - tail:
            return
        rows = at(tail + RECORD.size, size - RECORD.size - padding)
        yield call, _Record(kind, number, thread, time, table, rows)
        tail += size


def _add_mark(calls: dict[int, RecordedCall], data: bytes, number: int, to_wall: int) -> None:
    """Add the marks of a thread to its call, which may have no record any more."""
    at = flight.HEADER_BYTES + number * SLOT.size
    thread, call, began, began_again, began_at, ended, ended_again, ended_at, own, table = (
        SLOT.unpack_from(data, at)
    )
    if not call:
        return
    last = max(began_at, ended_at) + to_wall
    one = calls.setdefault(call, RecordedCall(own, thread, table, last, last))
    one.last = max(one.last, last)
    one.mark = Mark(
        (began - 1, began_again) if began > 0 else None,
        (ended - 1, ended_again) if ended > 0 else None,
    )


def _tables(root: Path) -> Mapping[int, Json]:
    tables: dict[int, Json] = {}
    for path in sorted((root / flight.FOLDER / flight.TABLES).glob("*.json")):
        # What is none says nothing: its calls have their rows all the same.
        with contextlib.suppress(OSError, ValueError):
            content = json_text.parse_object(limits.read(path, limits.JSON_BYTES))
            known = {"run": content.get("run", {}), "table": content.get("table", {})}
            rows.read(known["run"], RunFacts)
            rows.read(known["table"], RunLaunches)
            tables[int(path.stem, 16)] = known
    return tables


def _write_runs(
    recording: Recording, tables: Mapping[int, Json], taken: Path, into: Path
) -> list[str]:
    """Write the calls as runs, whose names these are; they are numbered as the calls are, or on
    from there where `taken` has those numbers."""
    rank = f"rank{recording.rank}"
    folder = into / rank
    folder.mkdir(parents=True, exist_ok=True)
    following: dict[int, int] = {}
    written: dict[int, Path] = {}
    made: list[str] = []
    for call in recording.calls:
        known = tables.get(call.table, {})
        table = known.get("table", {})
        number = max(call.number, following.get(call.table, 0))
        while (folder / f"run{number}").exists() or (taken / rank / f"run{number}").exists():
            number += 1
        following[call.table] = number + 1
        run = folder / f"run{number}"
        run.mkdir()
        own = {"call": call.number, "pid": recording.pid, "thread": call.thread}
        facts = {**known.get("run", {}), **own, "started": call.started / 1e9}
        _write_table(run / _LAUNCHES, table, written, call.table)
        (run / _RUN).write_text(json_text.encode(facts, indent=1) + "\n", encoding="utf-8")
        events = run / _EVENTS
        is_over = recording.has_ended and not recording.message
        events.write_bytes(b"".join(_with_mark(call, table, is_over=is_over)))
        moment = min(max(call.last, 0), _LATEST)
        os.utime(events, ns=(moment, moment))
        made.append(f"{rank}/{run.name}")
    return made


def _write_table(path: Path, table: Json, written: dict[int, Path], number: int) -> None:
    """The table of launches is the same in all calls: each has a name of one file, if it can."""
    if number in written:
        with contextlib.suppress(OSError):
            os.link(written[number], path)
            return
    path.write_text(json_text.encode(table, indent=1) + "\n", encoding="utf-8")
    written[number] = path


def _with_mark(call: RecordedCall, table: Json, *, is_over: bool) -> list[bytes]:
    """The rows of a call, with those that say how far its thread came, where that tells something:
    a process that `is_over` by itself was in no launch."""
    mark, rows = call.mark, call.rows
    if mark is None or mark.began is None or (is_over and mark.began == mark.ended):
        return rows
    before = _row(mark.began, "before", table)
    if call.is_left:
        return [*rows, before]
    of_last = len(rows)
    start = _row(mark.began, "after", table)[:-2]
    while of_last and rows[of_last - 1].startswith(start):
        of_last -= 1
    if of_last < len(rows):
        return [*rows[:of_last], before, *rows[of_last:]]
    # What it wrote was not fetched from the device any more.
    return [*rows, before, start + b"}\n"]


def _row(which: tuple[int, int], phase: str, table: Json) -> bytes:
    launch, iteration = which
    of_table: Json = next((x for x in table.get("launches", ()) if x.get("launch") == launch), {})
    row: Json = {"launch": launch, "phase": phase, "kernel": of_table.get("kernel", "")}
    if iteration or of_table.get("repeats"):
        row["iteration"] = iteration
    return (json_text.encode(row) + "\n").encode()


def _write_ended(recording: Recording, root: Path) -> None:
    """Say how the process ended, where nobody else knows it. Of several processes one that did not
    end well counts."""
    if recording.is_copy:
        return
    message = recording.message
    if not recording.has_ended:
        message = _KILLED
    elif not message and recording.calls and recording.calls[-1].is_left:
        message = _LEFT
    # What ended by itself left no exception: it is taken for well.
    code = 1 if recording.message else None if message else 0
    ended = {"code": code, "message": message or _BY_ITSELF}
    facts = {"format": "rewriter.ended", "version": 1, "ended": ended}
    path = root / _ENDED
    if code != 0 and _is_well(path):
        path.unlink()
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(json_text.encode(facts, indent=1) + "\n")


def _is_well(path: Path) -> bool:
    """Whether a process that ended by itself is all that is known of the end."""
    try:
        return rows.read(json_text.parse_object(path.read_bytes()), EndedFile).ended == _WELL
    except (OSError, ValueError):
        return False
