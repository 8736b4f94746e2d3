"""Does work on many values side by side: one process for each core, where that is worth it.

What the work gives is values, and nothing is written by it. Whatever is not plain success is none
here: it is done again by whoever asked, in this process, so that an error is raised as always.
"""

from __future__ import annotations

import os
import pickle
import resource
import selectors
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn, TypeVar

Value = TypeVar("Value")
Result = TypeVar("Result")

# Less work than these takes as long as starting processes.
_VALUES = 4
_SIZE = 1 << 18
_LENGTH = 8  # bytes that tell how long a result is
_FILES = 1 << 16  # descriptors that a process may have where nothing limits them
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # may be exceptions of the parent


def results(
    work: Callable[[Value], Result], values: Sequence[Value], sizes: Sequence[int]
) -> Iterator[Result | None]:
    """What `work` gives for each value, in their order; `None` for what is to be done here.

    That is all of it where there is one core, little work, or no way to share it; and what raised.
    `sizes` say how much work each value is. Results are pickled.
    """
    count = min(_cores(), len(values))
    if count < 2 or len(values) < _VALUES or sum(sizes) < _SIZE or not _can_fork():
        yield from (None for _ in values)
        return
    crew = _Crew()
    try:
        crew.start(work, values, _shares(sizes, count))
        yield from crew.results(len(values))
    finally:
        crew.end()


def _cores() -> int:
    """How many processes may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _can_fork() -> bool:
    """A copy of a process has one thread: what another one holds it holds for ever."""
    return hasattr(os, "fork") and threading.active_count() == 1


def _shares(sizes: Sequence[int], count: int) -> list[list[int]]:
    """The positions that each process does: the largest first, to who has the least."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for position in sorted(range(len(sizes)), key=lambda one: -sizes[one]):
        least = loads.index(min(loads))
        shares[least].append(position)
        loads[least] += sizes[position]
    return [sorted(share) for share in shares if share]


class _Crew:
    """Processes that do their share and end. One whose results nobody takes ends as it writes."""

    def __init__(self) -> None:
        self._processes: list[int] = []
        self._pipes: dict[int, bytearray] = {}

    def start(
        self,
        work: Callable[[Value], Result],
        values: Sequence[Value],
        shares: Sequence[Sequence[int]],
    ) -> None:
        """Start a process for each share. Whatever interrupts this, `end` stops all of them."""
        for share in shares:
            # An interrupt waits until the process is known.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
            try:
                reading, writing = os.pipe()
                self._pipes[reading] = bytearray()
                process = os.fork()
                if process == 0:
                    _do(work, values, share, writing)
                self._processes.append(process)
                os.close(writing)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def results(self, count: int) -> Iterator[Any]:
        """The result of each position, in order; `None` for what did not arrive."""
        arrived: dict[int, Any] = {}
        waiting = self._receive()
        for position in range(count):
            while position not in arrived:
                some = next(waiting, None)
                if some is None:
                    break
                arrived.update(some)
            yield arrived.pop(position, None)

    def end(self) -> None:
        """Stop what still runs."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
        for process in self._processes:
            os.kill(process, signal.SIGKILL)  # it is a child that nobody has waited for: it is ours
            os.waitpid(process, 0)
        self._processes.clear()

    def _receive(self) -> Iterator[dict[int, Any]]:
        """Results as they arrive, until all processes have ended."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, 1 << 20)
                    if not data:
                        selector.unregister(key.fd)
                        continue
                    self._pipes[key.fd] += data
                    yield dict(_whole(self._pipes[key.fd]))


def _whole(data: bytearray) -> Iterator[tuple[int, Any]]:
    """The results that have arrived whole, which are taken out."""
    start = 0
    while len(data) - start >= _LENGTH:
        end = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "little")
        if len(data) < end:
            break
        yield pickle.loads(data[start + _LENGTH : end])  # written by a copy of this process
        start = end
    del data[:start]


def _do(
    work: Callable[[Value], Result], values: Sequence[Value], share: Sequence[int], pipe: int
) -> NoReturn:
    """The life of a process: its share, and nothing that its parent would do at its end."""
    code = 1
    try:
        # Whoever holds a lock by an open file gives it up with the last copy of that.
        os.closerange(3, pipe)
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(pipe + 1, highest if 0 < highest < _FILES else _FILES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, too, and ends this
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        with os.fdopen(pipe, "wb") as file:
            for position in share:
                _send(file, position, work, values[position])
        code = 0
    finally:
        os._exit(code)


def _send(file: BinaryIO, position: int, work: Callable[[Value], Result], value: Value) -> None:
    try:
        data = pickle.dumps((position, work(value)), pickle.HIGHEST_PROTOCOL)
    except Exception:  # the parent meets it, too, and says what it is
        return
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()
