"""Reads a ring: the file in which the probe `record` keeps the last rows and marks of a process.

`flight.py` describes the file, which a program may write while it is read.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rewriter.dump import flight
from rewriter.dump.document_files import MANIFEST
from rewriter.dump.flight import BEGIN, DATA_AT, HEADER, RECORD, ROWS, SLOT


@dataclass(frozen=True)
class Mark:
    """How far a thread came in a call: the launch that began last, with its iteration, and the one
    that ended last; `None` if none did."""

    began: tuple[int, int] | None
    ended: tuple[int, int] | None


@dataclass
class RingCall:
    """One call of a wrapper, as far as a ring still has it.

    `number` is that of the call in its wrapper, `table` the number of the wrapper's table of
    launches. `is_whole`: the ring still has the beginning of the call. `started` and `last` are
    wall-clock times in nanoseconds.
    """

    number: int
    thread: int
    table: int
    started: int
    last: int
    is_whole: bool = False
    rows: list[bytes] = field(default_factory=list)
    mark: Mark | None = None

    @property
    def has_open_launch(self) -> bool:
        """Whether its thread began a launch and did not end it."""
        return self.mark is not None and self.mark.began != self.mark.ended


@dataclass(frozen=True)
class RingContent:
    """What a ring has about its process.

    `has_ended`: the process ended by itself; `message` is the text of the exception that ended it.
    `is_copy`: the ring was copied while its process ran. `total` is the number of calls in the
    ring; `calls` are all of them, or those that `last` chose. `lost_marks` is how often a thread
    lost its marks to another one while it was in a launch.
    """

    pid: int
    rank: int
    has_ended: bool
    is_copy: bool
    message: str
    calls: tuple[RingCall, ...]
    total: int = 0
    lost_marks: int = 0

    def last(self, count: int) -> RingContent:
        """The same with the last `count` calls, and earlier ones with an open launch."""
        rest = self.calls[: max(0, len(self.calls) - count)]
        is_open = tuple(call for call in rest if call.has_open_launch)
        return replace(self, calls=is_open + self.calls[len(rest) :])


class Header(NamedTuple):
    """The header of a ring, in the order of `flight.HEADER`. `head` and `tail` count the bytes that
    were written and overwritten; `wall` and `clock` are one moment by both clocks."""

    magic: bytes
    version: int
    capacity: int
    head: int
    tail: int
    lock: int
    state: int
    calls: int
    pid: int
    start: int
    rank: int
    slots: int
    wall: int
    clock: int

    @classmethod
    def parse(cls, data: bytes) -> Header | None:
        """Parse a header; `None` if the bytes are not the start of a ring of this version."""
        if len(data) < HEADER.size:
            return None
        head = cls._make(HEADER.unpack_from(data))
        is_known = (head.magic, head.version) == (flight.MAGIC, flight.VERSION)
        return head if is_known and 0 < head.capacity <= flight.MOST else None

    @classmethod
    def read(cls, path: Path) -> Header | None:
        """The header of the ring at `path`."""
        with path.open("rb") as file:
            return cls.parse(file.read(HEADER.size))


def read_ring(path: Path) -> RingContent | None:
    """The content of a ring; `None` if the file is not a complete ring of this version."""
    with path.open("rb") as file:
        head = Header.parse(file.read(HEADER.size))
        if head is None:
            return None
        file.seek(0)
        data = file.read(DATA_AT + head.capacity)
        file.seek(0)
        # Records that were overwritten while the data were read are not valid.
        after = Header.parse(file.read(HEADER.size))
    if after is None or len(data) < DATA_AT + head.capacity:
        return None
    to_wall = head.wall - head.clock
    calls: dict[int, RingCall] = {}
    for record in _records(data, head.capacity, after.tail, head.head):
        time = record.time + to_wall
        call = calls.setdefault(
            record.call, RingCall(record.number, record.thread, record.table, time, time)
        )
        call.last = max(call.last, time)
        call.is_whole = call.is_whole or record.kind == BEGIN
        if record.kind == ROWS:
            call.rows += record.rows.splitlines(keepends=True)
    for slot in range(min(head.slots, flight.SLOTS)):
        _add_mark(calls, data, slot, to_wall)
    message = data[flight.MESSAGE_AT : flight.HEADER_BYTES].partition(b"\0")[0]
    kept = [calls[call] for call in sorted(calls)]
    if any(call.is_whole for call in kept):
        kept = [call for call in kept if call.is_whole or call.mark is not None]
    (lost_marks,) = flight.LOST.unpack_from(data, flight.LOST_AT)
    return RingContent(
        pid=head.pid,
        rank=head.rank,
        has_ended=head.state == flight.ENDED,
        is_copy=head.state == flight.COPIED,
        message=message.decode("utf-8", "replace"),
        calls=tuple(kept),
        total=len(kept),
        lost_marks=lost_marks,
    )


class _Record(NamedTuple):
    kind: int
    call: int
    number: int
    thread: int
    time: int
    table: int
    rows: bytes


def _records(data: bytes, capacity: int, tail: int, head: int) -> Iterator[_Record]:
    """Yield the records, the oldest first, up to the first damaged one."""

    def at(place: int, size: int) -> bytes:
        start = DATA_AT + place % capacity
        first = data[start : min(start + size, DATA_AT + capacity)]
        return first + data[DATA_AT : DATA_AT + size - len(first)]

    while 0 <= head - tail <= capacity and head - tail >= RECORD.size:
        size, kind, padding, *about = RECORD.unpack(at(tail, RECORD.size))
        if size % 8 or not RECORD.size + padding <= size <= head - tail:
            return
        rows = at(tail + RECORD.size, size - RECORD.size - padding)
        yield _Record._make((kind, *about, rows))
        tail += size


def _add_mark(calls: dict[int, RingCall], data: bytes, slot: int, to_wall: int) -> None:
    """Add the marks of a thread to its call, which may have no other record left in the ring."""
    at = flight.HEADER_BYTES + slot * SLOT.size
    thread, serial, began, began_again, began_at, ended, ended_again, ended_at, number, table = (
        SLOT.unpack_from(data, at)
    )
    if not serial:
        return
    last = max(began_at, ended_at) + to_wall
    call = calls.setdefault(serial, RingCall(number, thread, table, last, last))
    call.last = max(call.last, last)
    # A slot has the index of a launch plus 1.
    call.mark = Mark(
        (began - 1, began_again) if began > 0 else None,
        (ended - 1, ended_again) if ended > 0 else None,
    )


def rings_of(pid: int) -> list[Path]:
    """The rings that a process of this machine writes. Raises `OSError` if its memory map cannot be
    read."""
    mapped = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    # The kernel writes a line break in a name as `\012`.
    names = (line.partition("/")[2].replace("\\012", "\n") for line in mapped.split("\n"))
    paths = (Path(f"/{name}") for name in sorted({*names}) if name.endswith(f"/{flight.RING}"))
    rings = (x for x in paths if x.parents[1].name == flight.FOLDER and x.is_file())
    # A fork still maps the ring of its parent, but does not write to it.
    own = _number_inside(pid)
    return [x for x in rings if (head := Header.read(x)) is None or head.pid == own]


def _number_inside(pid: int) -> int:
    """The number that a process has for itself, which is another one inside a container."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def copy_ring(ring: Path, into: Path) -> None:
    """Copy the ring of a running process, as it is now, into another dump, which may have rings of
    other processes."""
    root = ring.parents[2]
    with ring.open("rb") as file:
        data = bytearray(file.read())
        file.seek(0)
        after = file.read(HEADER.size)
    head, later = (Header._make(HEADER.unpack_from(x)) for x in (data, after))
    # The tail from after the copy: records that were overwritten meanwhile are not valid. The copy
    # has no lock, and a state of its own.
    HEADER.pack_into(data, 0, *head._replace(tail=later.tail, lock=0, state=flight.COPIED))
    tables = Path(flight.FOLDER, flight.TABLES)
    if not (into / MANIFEST).exists():
        shutil.copy(root / MANIFEST, into / MANIFEST)
    (into / tables).mkdir(parents=True, exist_ok=True)
    for table in (root / tables).glob("*.json"):
        shutil.copy(table, into / tables / table.name)
    folder = into / flight.FOLDER / ring.parent.name
    for number in itertools.count(1):  # the process may have another ring, of another dump
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            break
        folder = folder.with_name(f"{ring.parent.name}.copy{number}")
    (folder / flight.RING).write_bytes(data)
