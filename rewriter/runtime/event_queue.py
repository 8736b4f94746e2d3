"""The queue of `cpp/engine/events.h`: what is measured is formatted and written by its own thread.

Order is kept: lines of all wrappers of this process among themselves, and rows of a call. What goes
around the queue (`Printer`, `CallDirectory`) waits until it is empty.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache, partial

import torch

from .engine_library import EngineUnavailable, declared, load

PRINTS_NOTHING, COLLECTS = -1, -2  # instead of a descriptor of standard output
LAUNCH = "@4q"
"""What `launch` takes, packed: the call, the plan, the iteration, the stream; then the address of
each tensor."""


class EventQueue:
    """The functions of the library. `launch` returns 0 for what cannot be measured, and 2 where
    something could not be written since `problems` was called."""

    def __init__(self, library: ctypes.CDLL) -> None:
        function = partial(declared, library)
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        number, size = ctypes.c_int32, ctypes.c_int64
        self._open = function("open", handle, number, number, number, number, text, size)
        self.close = function("close", None, handle)
        self._plan = function("plan", handle, text)
        self.forget = function("forget", None, handle)
        self.launch = function("launch", number, text)
        # Of the same function, for what calls it itself.
        self.launch_address = ctypes.cast(library.inductor_rewriter_launch, handle).value or 0
        self.settle = function("settle", None)
        self.drain = function("drain", None)
        self.forked = function("forked", None)
        self._collected = function("collected", handle, handle, ctypes.POINTER(size))
        self._problem = function("problem", number, number)
        self._device_problem = function("device_problem", text)
        self._finding = function("finding", text)

    def open(self, lines: int, rows: int, is_prompt: bool, start: bytes) -> int:
        """A call of a wrapper, by its descriptors; `start` begins its lines, and if it is prompt, a
        launch waits until it is written."""
        threads = torch.get_num_threads()
        number: int = self._open(lines, rows, threads, is_prompt, start, len(start))
        return number

    def plan(self, packed: bytes) -> int:
        """What `PlanReader` reads, by its number from now on."""
        number: int = self._plan(packed)
        return number

    def collected(self, call: int) -> str:
        """The lines of a call that nobody wrote; all of them have to be emitted."""
        size = ctypes.c_int64()
        data = self._collected(call, ctypes.byref(size))
        return ctypes.string_at(data, size.value).decode("utf-8", "replace")

    def problems(self) -> list[tuple[str, str]]:
        """What could not be written since this was called last: where, and why."""
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
        """The first NaN of a plan that stops, since this was called last: the launch, -1 for the
        inputs, the value, and how many elements of it."""
        text = self._finding()
        if not text:
            return None
        launch, name, count = text.decode("utf-8", "replace").split("\n")
        return int(launch), name, count


def _message(number: int, more: str) -> str:
    error = BrokenPipeError if number == errno.EPIPE else OSError
    return f"{error.__name__}: [Errno {number}] {os.strerror(number)}{more}"


class PackedText:
    """Packs what `PlanReader` reads."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, *values: int) -> PackedText:
        self._parts.append(struct.pack(f"@{len(values)}q", *values))
        return self

    def text(self, *values: str) -> PackedText:
        for value in values:
            data = value.encode()
            self.number(len(data))
            self._parts.append(data)
        return self

    def bytes(self) -> bytes:
        return b"".join(self._parts)


_QUEUE: list[EventQueue] = []


@cache
def start_queue() -> EventQueue | None:
    """The queue of this process, or none where there is no library."""
    library = load()
    if isinstance(library, EngineUnavailable):
        return None
    _QUEUE.append(EventQueue(library.functions))
    # Its thread is none of a fork, and what is queued is not the fork's to write.
    os.register_at_fork(after_in_child=_QUEUE[0].forked)
    return _QUEUE[0]


def drain_queue() -> None:
    """Wait until what was queued is written, if there is a queue."""
    for queue in _QUEUE:
        queue.drain()
