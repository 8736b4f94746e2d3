"""Works on many values in parallel, with one process per core if that is worth it, or does one
thing beside the caller's own work.

The work returns values, and leaves nothing behind if it is killed. If anything goes wrong in a
process, the caller does the work again in its own process, so that errors are raised as usual.
"""

from __future__ import annotations

import os
import pickle
import resource
import selectors
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, BinaryIO, NoReturn, TypeVar

from rewriter.core.signals import ENDING, held_back

Value = TypeVar("Value")
Result = TypeVar("Result")

# With less work than this, starting processes takes as long.
_VALUES = 4
_SIZE = 1 << 18
_LENGTH = 8  # bytes for the length of a result
_FILES = 1 << 16  # the number of descriptors to close if the system sets no limit


def results(
    work: Callable[[Value], Result], values: Sequence[Value], sizes: Sequence[int]
) -> Iterator[Result | None]:
    """The result of `work` for each value, in order; `None` for values that are left to the caller.

    These are all values if there is one core, little work, or no way to share it, and values for
    which `work` raised. `sizes` say how much work each value is. Results are pickled.
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


def each(
    work: Callable[[Value], Result], values: Sequence[Value], sizes: Sequence[int]
) -> Iterator[Result]:
    """The result of `work` for each value, in order: as `results`, and done here for values that
    are left to the caller."""
    for value, result in zip(values, results(work, values, sizes), strict=True):
        yield work(value) if result is None else result


@contextmanager
def beside(work: Callable[[threading.Event], Result]) -> Iterator[Callable[[], Result]]:
    """Do some work while the body runs. The body gets a function that waits for the result, or
    raises the error of the work.

    A process does it, since a thread would wait for the interpreter's lock; where forking is not
    safe, a thread. When the body ends, the process is killed, and the event of the thread is set.
    The result is pickled; if none arrives, the work is done again by who asks.
    """
    stopped = threading.Event()
    if not _can_fork():
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            try:
                yield pool.submit(work, stopped).result
            finally:
                stopped.set()
        return
    crew = _Crew()

    def result() -> Result:
        (arrived,) = crew.results(1)
        return work(stopped) if arrived is None else arrived[0]

    try:
        crew.start(lambda event: (work(event),), [stopped], [[0]])  # a tuple: None is no result
        yield cache(result)
    finally:
        crew.end()


def _cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _can_fork() -> bool:
    """Whether a fork is safe: it has one thread, so a lock that another one holds stays locked."""
    return hasattr(os, "fork") and threading.active_count() == 1


def _shares(sizes: Sequence[int], count: int) -> list[list[int]]:
    """The positions for each process: the largest values first, to whichever has the least work."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for position in sorted(range(len(sizes)), key=lambda one: -sizes[one]):
        least = loads.index(min(loads))
        shares[least].append(position)
        loads[least] += sizes[position]
    return [sorted(share) for share in shares if share]


class _Crew:
    """Processes that do their shares and end. If nobody reads its results, a process ends too."""

    def __init__(self) -> None:
        self._processes: list[int] = []
        self._pipes: dict[int, bytearray] = {}

    def start(
        self,
        work: Callable[[Value], Result],
        values: Sequence[Value],
        shares: Sequence[Sequence[int]],
    ) -> None:
        """Start a process for each share. Whatever interrupts this, `end` stops all of them.

        Where the system allows no more processes or files, what is left is left to the caller.
        """
        for share in shares:
            # Interrupts wait until the new process is in the list.
            with held_back():
                try:
                    reading, writing = os.pipe()
                    self._pipes[reading] = bytearray()
                    try:
                        process = os.fork()
                        if process == 0:
                            _do(work, values, share, writing)
                        self._processes.append(process)
                        os.setpgid(process, process)  # in both: either may run first
                    finally:
                        os.close(writing)
                except OSError:
                    return

    def results(self, count: int) -> Iterator[Any]:
        """The result for each position, in order; `None` if it did not arrive."""
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
        """Stop all processes that are still running, and what they started."""
        with held_back():
            for pipe in self._pipes:
                os.close(pipe)
            self._pipes.clear()
            for process in self._processes:
                # Nobody waited for it yet, so the number is still ours, but in a program that
                # ignores SIGCHLD, or waits for any process.
                with suppress(ChildProcessError, ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
            self._processes.clear()

    def _receive(self) -> Iterator[dict[int, Any]]:
        """Yield results as they arrive, until all processes have ended."""
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
    """Yield the results that have arrived completely, and remove them from the buffer."""
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
    """Run in the new process: do its share, without the exit handlers of the parent."""
    code = 1
    try:
        os.setpgid(0, 0)
        # A lock of an open file is held until all copies of the descriptor are closed.
        os.closerange(3, pipe)
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(pipe + 1, highest if 0 < highest < _FILES else _FILES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        with os.fdopen(pipe, "wb") as file:
            for position in share:
                _send(file, position, work, values[position])
        code = 0
    finally:
        os._exit(code)


def _send(file: BinaryIO, position: int, work: Callable[[Value], Result], value: Value) -> None:
    try:
        data = pickle.dumps((position, work(value)), pickle.HIGHEST_PROTOCOL)
    except Exception:  # the parent will raise it as well, and report it
        return
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()
