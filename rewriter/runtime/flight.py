"""The ring buffer of the probe `record`: the last rows and marks of a process.

It lies in a file that is mapped into memory, and so survives the process however that ends. The
layout is that of `cpp/engine/flight.h`; all copies of the runtime in a process share one ring.
Where the engine cannot be built, `PythonRing` writes the same layout into a file of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import threading
import time
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from .engine_library import EngineUnavailable, declared, load
from .forks import register_for_forks
from .sizes import parse_bytes

FOLDER, RING, TABLES = "record", "ring", "tables"
MAGIC, VERSION = b"rwflight", 1
HEADER = struct.Struct("<8sQQQQIIQqQIIQQ")
"""Magic, version, capacity, head, tail, lock, state, calls, pid, start, rank, slots; the time of
creation by the wall clock and by the monotonic clock."""
SLOT = struct.Struct("<QQiiQiiQQQ")
"""The marks of one thread: thread, call; of the launch that began last: index + 1, iteration, time;
the same of the launch that ended last; the number of the call in its wrapper, table."""
RECORD = struct.Struct("<IHHQQQQQ")
"""The head of a record: size, kind, padding, call, number in its wrapper, thread, time, table."""
CALL = struct.Struct("<QQQQQ")
"""A call in packed form: call, its number in its wrapper, thread, table, time at which it began."""
VALUE = struct.Struct("@3i??2xqqqddQ")
"""The struct `TriggerValue` of `cpp/engine/triggers.h`."""
HEADER_BYTES, MESSAGE_AT, SLOTS = 4096, 1024, 255
DATA_AT = HEADER_BYTES + SLOTS * SLOT.size
BEGIN, ROWS, END = 1, 2, 3
RUNNING, ENDED, COPIED = 1, 2, 3
BEGAN, FINISHED = struct.Struct("<iiQ"), struct.Struct("<iiQ")
CALL_AT, BEGAN_AT, FINISHED_AT = 8, 16, 32  # byte offsets in a slot
LOST, LOST_AT = struct.Struct("<I"), 100
"""In the header: how often a thread lost its slot to another thread while it was in a launch."""
USUAL, MOST, LEAST = 32 << 20, 64 << 20, 64 << 10  # bytes
_HEAD_AT, _TAIL_AT, _STATE_AT, _CALLS_AT, _SLOTS_AT = 24, 32, 44, 48, 76
_USUAL_RECORD = 16 << 10
_WORD, _HALF = struct.Struct("<Q"), struct.Struct("<I")


class Ring(Protocol):
    """The ring of a process; it takes the rows of calls. `memory` is the mapped file, for marks."""

    path: str
    memory: mmap.mmap

    @property
    def words(self) -> memoryview:
        """The mapped file as 64-bit integers."""

    @property
    def mapped_at(self) -> int:
        """The address of the mapped file in this process."""

    def start(self, number: int, table: int) -> bytes:
        """Begin call `number` of a wrapper in this thread. Returns the call, packed as `CALL`."""

    def enter(self, call: bytes) -> int:
        """Take the slot for marks of the call's thread. Returns its offset in the file."""

    def rows(self, call: bytes, data: bytes) -> None:
        """Append rows of a call, overwriting the oldest records if there is no room."""

    def end(self, call: bytes, triggers: int = 0) -> None:
        """End a call; `triggers` is the handle from `NativeRing.triggers`, 0 for none."""

    def finish(self, exception: bytes) -> None:
        """Note that the process ends by itself, with the text of an unhandled exception or none."""


class _Mapped:
    """Gives a ring its `words` and their address."""

    memory: mmap.mmap

    @cached_property
    def words(self) -> memoryview:
        """The mapped file as 64-bit integers. The view keeps the mapping alive."""
        return memoryview(self.memory).cast("Q")

    @cached_property
    def mapped_at(self) -> int:
        """The address of the mapped file in this process."""
        return ctypes.addressof(ctypes.c_uint64.from_buffer(self.words))


class NativeRing(_Mapped):
    """The engine's ring, which C++ and Python share; `address` is that of the C++ object."""

    def __init__(self, root: str, rank: int, library: ctypes.CDLL) -> None:
        function = partial(declared, library)
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        large, size = ctypes.c_uint64, ctypes.c_int64
        opened = function("flight", handle, text, ctypes.c_int32)(os.fsencode(root), rank)
        if not opened:
            raise OSError(os.fsdecode(function("flight_problem", text)()))
        self.address: int = opened
        self.path = os.fsdecode(function("flight_path", text, handle)(opened))
        self._start = function("flight_start", None, handle, large, large, text)
        self._enter = function("flight_enter", large, handle, text)
        self._rows = function("flight_rows", None, handle, text, text, size)
        self._end = function("flight_end", None, handle, text, handle)
        self._finish = function("flight_finish", None, handle, text)
        self.record: Any = function("record", None, handle, handle, text, handle)
        self._triggers = function("triggers", handle, handle, text, ctypes.c_int32, text, text)
        self._see = function("trigger", None, handle, text, text, text)
        self._fire = function("fire", None, handle)
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), DATA_AT)

    def start(self, number: int, table: int) -> bytes:
        call = ctypes.create_string_buffer(CALL.size)
        self._start(self.address, number, table, call)
        return call.raw

    def enter(self, call: bytes) -> int:
        return int(self._enter(self.address, call))

    def rows(self, call: bytes, data: bytes) -> None:
        self._rows(self.address, call, data, len(data))

    def end(self, call: bytes, triggers: int = 0) -> None:
        self._end(self.address, call, triggers or None)

    def triggers(self, root: str, rank: int, wanted: str, kernels: str) -> int:
        """Make the triggers `wanted` (`--on`) for the values of one wrapper. Returns their handle.

        `kernels` has a line `INDEX KERNEL` for each launch.
        """
        number: int = self._triggers(
            self.address, os.fsencode(root), rank, wanted.encode(), kernels.encode()
        )
        return number

    def see(self, triggers: int, call: bytes, value: bytes, name: str) -> None:
        """Let the triggers look at a value of a call, packed as `VALUE`."""
        self._see(triggers, call, value, name.encode())

    def fire(self, triggers: int) -> None:
        """Let the triggers write what they found. The rows of the values must be in the ring."""
        self._fire(triggers)

    def finish(self, exception: bytes) -> None:
        self._finish(self.address, exception)


class PythonRing(_Mapped):
    """A ring that is written by Python alone, for where there is no engine."""

    def __init__(self, root: str, rank: int) -> None:
        self._lock = threading.Lock()
        self._capacity = wanted_bytes()
        size = DATA_AT + self._capacity
        self.path, self._locked = _new_file(root, size)
        with open(self.path, "r+b") as file:  # mapping the locked descriptor would keep the lock
            self.memory = mmap.mmap(file.fileno(), size)
        register_for_forks(self)
        start = process_start(os.getpid())
        HEADER.pack_into(
            self.memory, 0, b"", VERSION, self._capacity, 0, 0, 0, RUNNING, 0, os.getpid(), start,
            rank, 0, time.time_ns(), time.monotonic_ns(),
        )  # fmt: skip
        self.memory[: len(MAGIC)] = MAGIC

    def start(self, number: int, table: int) -> bytes:
        with self._lock:
            serial = self._number(_CALLS_AT) + 1
            _WORD.pack_into(self.memory, _CALLS_AT, serial)
            _HALF.pack_into(self.memory, _STATE_AT, RUNNING)
        call = CALL.pack(serial, number, threading.get_ident(), table, time.monotonic_ns())
        self._append(call, BEGIN, b"")
        return call

    def enter(self, call: bytes) -> int:
        serial, number, thread, table, _ = CALL.unpack(call)
        with self._lock:
            (used,) = _HALF.unpack_from(self.memory, _SLOTS_AT)
            offsets = [HEADER_BYTES + place * SLOT.size for place in range(min(used, SLOTS))]
            known = (x for x in offsets if _WORD.unpack_from(self.memory, x)[0] == thread)
            offset = next(known, -1)
            if offset < 0 and used < SLOTS:
                offset = HEADER_BYTES + used * SLOT.size
                _HALF.pack_into(self.memory, _SLOTS_AT, used + 1)
            elif offset < 0:
                offset = self._give_up(offsets)
            now = time.monotonic_ns()
            SLOT.pack_into(self.memory, offset, thread, serial, 0, 0, now, 0, 0, 0, number, table)
        return offset

    def _give_up(self, offsets: list[int]) -> int:
        """Choose a slot to take from its thread: preferably from a thread that is in no launch,
        and among these from the one that left no mark for the longest time."""

        def worth(offset: int) -> tuple[bool, int]:
            _, _, began, again, at, ended, ended_again, ended_at, _, _ = SLOT.unpack_from(
                self.memory, offset
            )
            return (began, again) != (ended, ended_again), max(at, ended_at)

        offset = min(offsets, key=worth)
        if worth(offset)[0]:
            (lost,) = LOST.unpack_from(self.memory, LOST_AT)
            LOST.pack_into(self.memory, LOST_AT, lost + 1)
        return offset

    def rows(self, call: bytes, data: bytes) -> None:
        at = 0
        while at < len(data):
            end = len(data)
            if end - at > _USUAL_RECORD:
                last = data.rfind(b"\n", at, at + _USUAL_RECORD)
                last = data.find(b"\n", at) if last < 0 else last
                end = end if last < 0 else last + 1
            self._append(call, ROWS, data[at:end])
            at = end

    def end(self, call: bytes, triggers: int = 0) -> None:
        self._append(call, END, b"")

    def finish(self, exception: bytes) -> None:
        room = HEADER_BYTES - MESSAGE_AT - 1
        self.memory[MESSAGE_AT : MESSAGE_AT + room] = exception[:room].ljust(room, b"\0")
        _HALF.pack_into(self.memory, _STATE_AT, ENDED)

    def forked(self) -> None:
        """In a forked process: close the inherited lock. Otherwise readers of the ring would take
        the parent process for alive as long as the fork lives."""
        if self._locked >= 0:
            os.close(self._locked)
        self._locked = -1

    def _number(self, at: int) -> int:
        number: int = _WORD.unpack_from(self.memory, at)[0]
        return number

    def _append(self, call: bytes, kind: int, data: bytes) -> None:
        """Append a record, which overwrites the oldest ones. Drops one that is larger than a
        quarter of the ring."""
        serial, number, thread, table, _ = CALL.unpack(call)
        whole = (RECORD.size + len(data) + 7) & ~7
        if whole > self._capacity // 4:
            return
        padding = whole - RECORD.size - len(data)
        now = time.monotonic_ns()
        record = RECORD.pack(whole, kind, padding, serial, number, thread, now, table) + data
        capacity, memory = self._capacity, self.memory
        with self._lock:
            head, tail = self._number(_HEAD_AT), self._number(_TAIL_AT)
            while head + whole - tail > capacity:
                tail += _HALF.unpack_from(memory, DATA_AT + tail % capacity)[0]
            _WORD.pack_into(memory, _TAIL_AT, tail)
            place = head % capacity
            first = min(len(record), capacity - place)
            memory[DATA_AT + place : DATA_AT + place + first] = record[:first]
            memory[DATA_AT : DATA_AT + len(record) - first] = record[first:]
            _WORD.pack_into(memory, _HEAD_AT, head + whole)


def open_ring(root: str, rank: int) -> Ring:
    """Open the ring of this process in the dump `root`. Raises `OSError` if that fails."""
    library = load()
    if isinstance(library, EngineUnavailable):
        return PythonRing(root, rank)
    return NativeRing(root, rank, library.functions)


def wanted_bytes() -> int:
    """The size of the ring in bytes, without header and slots, from `REWRITER_RECORD_BYTES`."""
    text = os.environ.get("REWRITER_RECORD_BYTES", "")
    try:
        bytes_ = parse_bytes(text) if text else USUAL
    except ValueError:
        bytes_ = USUAL
    return max(LEAST, min(bytes_, MOST)) & ~4095


def process_start(pid: int) -> int:
    """The start time of a process in clock ticks since boot; 0 if it does not exist.

    Together with the process number this identifies a process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _new_file(root: str, size: int) -> tuple[str, int]:
    """Create the file of a new ring with `size` bytes. Returns its path and locked descriptor."""
    stem = f"{root}/{FOLDER}/{socket.gethostname().replace('/', '_')}.{os.getpid()}"
    for number in range(1000):
        folder = f"{stem}.{number}" if number else stem
        os.makedirs(folder, exist_ok=True)
        path, temporary = f"{folder}/{RING}", f"{folder}/.{RING}.{os.getpid()}"
        if os.path.exists(path):
            continue
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # Allocate it now: if the disk were full later, writing to the mapping would be SIGBUS.
            os.posix_fallocate(descriptor, 0, size)
            # Readers take the process for alive while it holds this lock, so lock before renaming.
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            os.rename(temporary, path)  # the folder's name has our process number
        except OSError:
            os.close(descriptor)
            os.unlink(temporary)
            raise
        return path, descriptor
    raise OSError(f"there are too many in {root}/{FOLDER}")
