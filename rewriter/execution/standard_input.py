"""Gives each of several runs of a program the whole standard input of this process.

A terminal is passed on as it is, and a file is rewound. Data from a pipe is kept in a temporary
file as the program reads it: the next run reads what was kept, and then the rest of the pipe.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import tempfile
import threading
from collections.abc import Iterator
from typing import BinaryIO

from rewriter.core.errors import FAILED, RewriterError

_PIECE = 1 << 16  # bytes


class StandardInput:
    """Standard input, from its position when this object is made."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._start: int | None = None  # position in a file
        self._kept: BinaryIO | None = None  # what was read from a pipe so far
        self.ended = False  # whether a pipe is at its end
        self.lost = ""  # why some data of a pipe could not be kept
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:  # it is closed
            return
        if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
            self._start = os.lseek(descriptor, 0, os.SEEK_CUR)
        elif not os.isatty(descriptor) and not _is_empty(descriptor):
            # It has no directory entry, so nothing is left behind, even if this process is killed.
            self._kept = tempfile.TemporaryFile(  # noqa: SIM115 - as long as this object
                prefix="rewriter-stdin-", buffering=0
            )

    @contextlib.contextmanager
    def feed(self) -> Iterator[Feed]:
        """The whole input, for one run of a program, which is started in this context.

        Raises `RewriterError` if an earlier run read data that could not be kept.
        """
        if self.lost:
            raise RewriterError(
                "input-lost",
                "the program has to run once more, and its standard input could not be kept: "
                f"{self.lost}",
                hint="Redirect it from a file (`< FILE`), or set TMPDIR to a directory with room.",
                code=FAILED,
            )
        if self._start is not None:
            os.lseek(self._descriptor, self._start, os.SEEK_SET)
        if self._kept is None:
            yield Feed(None)
            return
        pump = _Pump(self, self._descriptor, self._kept)
        try:
            yield Feed(pump)
        finally:
            pump.stop()


class Feed:
    """`descriptor` is the standard input for a process, `None` for that of this process.

    Call `start` once the process is started.
    """

    def __init__(self, pump: _Pump | None) -> None:
        self._pump = pump
        self.descriptor = None if pump is None else pump.reads

    def start(self) -> None:
        """Let the data flow."""
        if self._pump is not None:
            self._pump.start()


class _Pump:
    """Passes to a process what was kept, and then new data, which it keeps.

    It reads no more than the process does, plus what fits into a pipe: if the process never reads,
    the data stays where it is, and its writer blocks as it would without us.
    """

    def __init__(self, source: StandardInput, descriptor: int, kept: BinaryIO) -> None:
        self._source, self._descriptor, self._kept = source, descriptor, kept
        self.reads, self._writes = os.pipe()
        self._woken, self._wakes = os.pipe()
        # Not the other end: the process would see the change.
        os.set_blocking(self._writes, False)
        self._thread = threading.Thread(target=self._run, name="standard input", daemon=True)

    def start(self) -> None:
        # Now only the process has this end, so that the pipe breaks when it exits.
        os.close(self.reads)
        self.reads = -1
        self._thread.start()

    def stop(self) -> None:
        os.write(self._wakes, b".")
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in (self.reads, self._writes, self._woken, self._wakes):
            if descriptor >= 0:
                os.close(descriptor)

    def _run(self) -> None:
        position = 0
        with contextlib.suppress(BrokenPipeError):  # the process closed it, or ended
            while piece := self._next(position):
                position += len(piece)
                if not self._give(piece):
                    return
        os.close(self._writes)
        self._writes = -1

    def _next(self, position: int) -> bytes:
        """The data at a position of the input; empty at its end, or once the process is over."""
        if piece := os.pread(self._kept.fileno(), _PIECE, position):
            return piece
        while not self._source.ended and self._wait(select.POLLIN, self._descriptor):
            try:
                piece = os.read(self._descriptor, _PIECE)
            except BlockingIOError:  # another process that shares it was faster
                continue
            self._source.ended = not piece
            self._keep(piece)
            return piece
        return b""

    def _keep(self, piece: bytes) -> None:
        if self._source.lost:
            return
        try:
            self._kept.seek(0, os.SEEK_END)
            while piece:
                piece = piece[self._kept.write(piece) :]
        except OSError as error:  # such as a full disk; only later runs need it
            self._source.lost = error.strerror or str(error)

    def _give(self, piece: bytes) -> bool:
        """Write all of it; false if the process is over before."""
        while piece:
            if not self._wait(select.POLLOUT, self._writes):
                return False
            with contextlib.suppress(BlockingIOError):
                piece = piece[os.write(self._writes, piece) :]
        return True

    def _wait(self, event: int, descriptor: int) -> bool:
        """Wait until a descriptor is ready; false if the process is over before."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._writes, 0)  # poll always reports a broken pipe
        poll.register(descriptor, event)
        while True:
            ready = dict(poll.poll())
            if self._woken in ready or ready.get(self._writes, 0) & select.POLLERR:
                return False
            if descriptor in ready:
                return True


def _is_empty(descriptor: int) -> bool:
    """Whether it is /dev/null."""
    facts = os.fstat(descriptor)
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == os.stat(os.devnull).st_rdev
