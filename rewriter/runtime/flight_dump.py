"""The dump of the probe `record`: rows of calls go into a ring instead of directories.

    DUMP/manifest.json
    DUMP/record/HOST.PID/ring
    DUMP/record/tables/0123456789abcdef.json

A table holds the `launches.json` of calls, and those members of their `run.json` that are the same
for all. `flight.py` describes the ring; `rewriter/dump/recorded.py` makes runs of it for readers.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import flight
from .dump import CallDirectory, DumpWriter
from .event_queue import drain_queue
from .flight import NativeRing, Ring
from .process import say
from .rows import event_rows, note_row

if TYPE_CHECKING:
    from .event import Event, Value
    from .running_call import RunningCall

_rings: dict[tuple[str, int], Ring | OSError] = {}


class RecordWriter(DumpWriter):
    """Writes the calls of one wrapper into the ring of its process."""

    def __init__(self, root: Path, rank: int, options: dict[str, Any], table: Any) -> None:
        super().__init__(root, rank, options, table)
        self._ring: Ring | None = None
        self._problem: OSError | None = None
        self._number = 0
        self._rank = rank
        # A file that was instrumented by an earlier version has fewer options.
        self._wanted = ",".join(options.get("on", ()))
        self._kernels = "\n".join(f"{row['launch']} {row['kernel']}" for row in table)
        self._triggers = 0

    def start(self, call: int) -> CallDirectory:
        """Begin a call of the wrapper in the ring. Raises `OSError` if the ring cannot be made."""
        if self._problem is not None:
            raise self._problem.with_traceback(None)
        if self._ring is None:
            try:
                self._write_manifest()
                ring = _ring_of(self._root, self._rank)
                self._number = self._keep_table()
            except OSError as error:
                # Such as a full disk: later calls do not try again.
                text = f"{error}; nothing is recorded, and the model runs on"
                self._problem = type(error)(text)
                raise self._problem from None
            if self._wanted and isinstance(ring, NativeRing):
                self._triggers = ring.triggers(
                    str(self._root), self._rank, self._wanted, self._kernels
                )
            elif self._wanted:
                say(f"[rewriter {self._rank}] warning: record: --on needs a C++ compiler\n")
            self._ring = ring
        packed = self._ring.start(call, self._number)
        return RecordedCall(
            f"{self._ranked_name}/run{call}", self._ring, packed, triggers=self._triggers
        )

    def finish(self, run: CallDirectory) -> None:
        """End a call."""
        run.close()

    def _keep_table(self) -> int:
        """Write the file of the wrapper's table, if there is none yet. Returns its number."""
        run, table = self._constant_members(), self._table_bytes()
        data = b'{"run": %s "call": 0}, "table": %s}\n' % (run, table)
        digest = hashlib.sha256(data).hexdigest()[:16]
        folder = self._root / flight.FOLDER / flight.TABLES
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{digest}.json"
        if not path.exists():
            temporary = folder / f".{digest}.{os.getpid()}"
            temporary.write_bytes(data)
            os.replace(temporary, path)
        return int(digest, 16)


class RecordedCall(CallDirectory):
    """One call in a ring. `triggers` is the handle of the triggers for its values, 0 for none."""

    def __init__(self, name: str, ring: Ring, packed: bytes, *, triggers: int = 0) -> None:
        self.name = name
        self.ring = ring
        self._packed = packed
        self._triggers = triggers
        self._is_closed = False
        self.append = self._append

    def leave_marks_of(self, call: RunningCall) -> None:
        """Let a call leave marks of its launches in the ring."""
        ring = self.ring
        call.slot = slot = ring.enter(self._packed)
        call.slot_address = ring.mapped_at + slot
        call.memory, call.words, call.word = ring.memory, ring.words, (slot + flight.CALL_AT) // 8
        call.mark = int.from_bytes(self._packed[:8], "little")

    def queue_into(self, call: int) -> None:
        """Let the event queue write its rows of a call, by its handle there, into the ring."""
        if isinstance(self.ring, NativeRing):
            self.ring.record(call, self.ring.address, self._packed, self._triggers or None)

    def see(self, event: Event, allowed: Callable[[Value], bool]) -> None:
        """Let the triggers look at the values of an event that did not go through the queue."""
        if not (self._triggers and isinstance(self.ring, NativeRing)):
            return
        launch = -1 if event.launch is None else event.launch.index
        place = 0
        for value in event.values:
            written = event.phase == "after" and value.label.role != "in" and value.is_tensor
            numbers = _numbers(value)
            packed = flight.VALUE.pack(
                launch, event.iteration, place, written, allowed(value), *numbers
            )
            self.ring.see(self._triggers, self._packed, packed, value.label.name)
            place += value.is_tensor

    def _append(self, rows: bytes) -> None:
        self.ring.rows(self._packed, rows)
        if self._triggers and isinstance(self.ring, NativeRing):
            self.ring.fire(self._triggers)

    def write(self, event: Event) -> None:
        """Append the rows of an event, after those that are still in the event queue."""
        drain_queue()
        self._append(event_rows(event).encode())

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Append a separate row with `facts` about an event."""
        drain_queue()
        self._append(note_row(event, facts).encode())

    def save(self, event: Event, value: Value) -> str:
        """A ring holds no tensors: nothing is saved."""
        return ""

    def close(self) -> None:
        """End the call in the ring, once."""
        if not self._is_closed:
            self._is_closed = True
            self.ring.end(self._packed, self._triggers)


def _numbers(value: Value) -> tuple[int, int, int, float, float, int]:
    """The last six members of a packed `VALUE`: counts of elements, NaN and infinities, the largest
    magnitude, the standard deviation, and a hash of the value."""
    known = value.statistics
    if known is None:
        text = value.fingerprint or value.text
        return 0, 0, 0, 0.0, 0.0, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    ends = (known.minimum, known.maximum)
    largest = max((abs(float(x)) for x in ends if x is not None), default=0.0)
    halves = int(value.fingerprint[:16] or "0", 16), int(value.fingerprint[16:] or "0", 16)
    print_ = halves[0] ^ halves[1] * 3 & (1 << 64) - 1
    return known.numel, known.nan, known.inf, largest, float(known.std or 0), print_


def _ring_of(root: Path, rank: int) -> Ring:
    key = (str(root), os.getpid())
    if key not in _rings:
        try:
            root.mkdir(parents=True, exist_ok=True)
            _rings[key] = ring = flight.open_ring(str(root), rank)
            atexit.register(_finish, key, ring)
        except OSError as problem:
            _rings[key] = problem.with_traceback(None)  # so that no other wrapper tries again
    known = _rings[key]
    if isinstance(known, OSError):
        raise known
    return known


def _finish(key: tuple[str, int], ring: Ring) -> None:
    if key[1] == os.getpid():  # not a fork
        drain_queue()
        # The interpreter sets it when it prints the traceback of an unhandled exception.
        error = getattr(sys, "last_value", None)
        text = "" if error is None else f"{type(error).__name__}: {error}"
        ring.finish(text.encode("utf-8", "replace"))
