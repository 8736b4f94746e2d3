"""The event queue of `cpp/engine/events.h`: a writing thread formats and writes measured launches.

The thread keeps the order of the printed lines of all wrappers of this process, and of the rows of
each call. `Printer` and `CallDirectory`, which write without the queue, first wait until it is
empty (`drain_queue`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache, partial

import torch

from .engine_library import EngineUnavailable, declared, load

COLLECTS = -2  # in place of the file descriptor of standard output; -1 prints nothing
LAUNCH = "@4q"
"""The argument of `launch`: call, plan, iteration, stream; then the address of each tensor."""


class EventQueue:
    """The event queue's functions in the engine's library.

    `launch` measures the values of a launch and queues them to be written. It returns 0 if they
    cannot be measured, else 1, or 2 if a write failed since the last call of `problems`.
    `settle` issues the measurements that wait to be combined with later ones; `drain`
    waits until the queue is empty; `close` ends a call, `forget` a plan.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        function = partial(declared, library)
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        number, size = ctypes.c_int32, ctypes.c_int64
        self._open = function("open", handle, number, number, number, number, text, size)
        self.close = function("close", None, handle)
        self._plan = function("plan", handle, text)
        self.forget = function("forget", None, handle)
        self.launch = function("launch", number, text)
        # The address of the same function, for the extension module, which calls it directly.
        self.launch_address = ctypes.cast(library.inductor_rewriter_launch, handle).value or 0
        self.settle = function("settle", None)
        self.drain = function("drain", None)
        self.forked = function("forked", None)
        self._collected = function("collected", handle, handle, ctypes.POINTER(size))
        self._problem = function("problem", number, number)
        self._device_problem = function("device_problem", text)
        self._finding = function("finding", text)

    def open(self, lines: int, rows: int, is_prompt: bool, start: bytes) -> int:
        """Open a call of a wrapper. Returns its handle.

        `lines` and `rows` are the file descriptors for printed lines and for rows of the dump.
        `start` is the beginning of each line. If `is_prompt`, `launch` returns only when the
        lines and rows of the launch are written.
        """
        threads = torch.get_num_threads()
        number: int = self._open(lines, rows, threads, is_prompt, start, len(start))
        return number

    def plan(self, packed: bytes) -> int:
        """Add a plan, packed as `PlanReader` (`cpp/engine/plan.h`) reads it. Returns its handle."""
        number: int = self._plan(packed)
        return number

    def collected(self, call: int) -> str:
        """Take the lines of a call that was opened with `COLLECTS`. The call has to be prompt."""
        size = ctypes.c_int64()
        data = self._collected(call, ctypes.byref(size))
        return ctypes.string_at(data, size.value).decode("utf-8", "replace")

    def problems(self) -> list[tuple[str, str]]:
        """The failures since the last call of this function: what each is about, and why."""
        found = []
        if number := self._problem(0):
            found.append(("stdout", _message(number, "")))
        if number := self._problem(1):
            found.append(("dump", _message(number, "; no more rows of this call")))
        if problem := self._device_problem():
            about, _, why = problem.decode("utf-8", "replace").partition("\n")
            found.append((about, why))
        return found

    def finding(self) -> tuple[int, str, str] | None:
        """The first NaN that is to end the program (`--stop`), or None.

        Returns the index of the launch (-1 for the inputs), the name of the value, and how many of
        its elements are NaN, as text. Each is returned once.
        """
        text = self._finding()
        if not text:
            return None
        launch, name, count = text.decode("utf-8", "replace").split("\n")
        return int(launch), name, count


def _message(number: int, more: str) -> str:
    error = BrokenPipeError if number == errno.EPIPE else OSError
    return f"{error.__name__}: [Errno {number}] {os.strerror(number)}{more}"


class PackedText:
    """Packs integers and texts as `PlanReader` of `cpp/engine/plan.h` reads them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, *values: int) -> PackedText:
        """Append integers, of 8 bytes each."""
        self._parts.append(struct.pack(f"@{len(values)}q", *values))
        return self

    def text(self, *values: str) -> PackedText:
        """Append texts, each after its length in bytes."""
        for value in values:
            data = value.encode()
            self.number(len(data))
            self._parts.append(data)
        return self

    def bytes(self) -> bytes:
        """Everything that was appended."""
        return b"".join(self._parts)


_QUEUE: list[EventQueue] = []


@cache
def start_queue() -> EventQueue | None:
    """The event queue of this process; None without the engine's library."""
    library = load()
    if isinstance(library, EngineUnavailable):
        return None
    _QUEUE.append(EventQueue(library.functions))
    # A fork has no writing thread, and must not write what its parent queued.
    os.register_at_fork(after_in_child=_QUEUE[0].forked)
    return _QUEUE[0]


def drain_queue() -> None:
    """Wait until everything in the event queue is written, if there is a queue."""
    for queue in _QUEUE:
        queue.drain()
