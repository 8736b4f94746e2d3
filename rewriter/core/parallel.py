"""Works on many values in parallel, with one process per core if that is worth it, or does one
thing beside the caller's own work.

The work returns values, and leaves nothing behind if it is killed. If anything goes wrong in a
process, the caller does the work again in its own process, so that errors are raised as usual.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rewriter.core.signals import ENDING, held_back

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Value = TypeVar("Value")
Result = TypeVar("Result")

# With less work than this, starting processes takes as long.
_VALUES = 4
_SIZE = 1 << 18
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
    shares = [partial(_share, work, values, share) for share in _shares(sizes, count)]
    with _processes(shares) as running:
        arrived: dict[int, Result] = {}
        waiting = _received(running)
        for position in range(len(values)):
            while position not in arrived and (one := next(waiting, None)) is not None:
                arrived[one[0]] = one[1]
            yield arrived.pop(position, None)


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
    with _processes([partial(_share, work, [stopped], [0])]) as running:

        def result() -> Result:
            arrived = next(_received(running), None)
            return work(stopped) if arrived is None else arrived[1]

        yield cache(result)


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
    for position in sorted(range(len(sizes)), key=lambda x: -sizes[x]):
        least = loads.index(min(loads))
        shares[least].append(position)
        loads[least] += sizes[position]
    return [sorted(share) for share in shares if share]


@contextmanager
def _processes(works: Sequence[Callable[[Connection], None]]) -> Iterator[list[Connection]]:
    """Processes that do these works, and where each sends its results. What is still running when
    the body ends is killed, and what it started.

    Where the system allows no more processes or files, what is left is left to the caller.
    """
    from multiprocessing import Pipe

    running: dict[int, Connection] = {}
    try:
        for work in works:
            # Interrupts wait until the new process is in the list.
            with held_back():
                try:
                    receiving, sending = Pipe(duplex=False)
                except OSError:
                    break
                with sending:
                    try:
                        process = os.fork()
                    except OSError:
                        receiving.close()
                        break
                    if process == 0:
                        _begin(work, sending)
                running[process] = receiving
                os.setpgid(process, process)  # in both: either may run first
        yield list(running.values())
    finally:
        with held_back():
            for process, receiving in running.items():
                receiving.close()
                # Nobody waited for it yet, so the number is still ours, but in a program that
                # ignores SIGCHLD, or waits for any process.
                with suppress(ChildProcessError, ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)


def _received(running: Sequence[Connection]) -> Iterator[tuple[int, Any]]:
    """Yield positions and results as they arrive, until all processes have ended."""
    from multiprocessing.connection import wait

    left = list(running)
    while left:
        ready = wait(left)
        for receiving in [connection for connection in left if connection in ready]:
            try:
                yield receiving.recv()
            except (EOFError, OSError):
                left.remove(receiving)


def _begin(work: Callable[[Connection], None], sending: Connection) -> NoReturn:
    """Run in the new process: do its work, without the exit handlers of the parent."""
    try:
        os.setpgid(0, 0)
        # A lock of an open file is held until all copies of the descriptor are closed.
        os.closerange(3, sending.fileno())
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(sending.fileno() + 1, highest if 0 < highest < _FILES else _FILES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        work(sending)
    finally:
        os._exit(0)


def _share(
    work: Callable[[Value], Result],
    values: Sequence[Value],
    share: Sequence[int],
    sending: Connection,
) -> None:
    """Send the results of a share; it ends if nobody reads them."""
    for position in share:
        with suppress(Exception):  # the parent will raise it as well, and report it
            result = work(values[position])
            try:
                sending.send((position, result))
            except BrokenPipeError:
                return
