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
from dataclasses import dataclass
from typing import BinaryIO

from rewriter.core.errors import FAILED, RewriterError

_PIECE = 1 << 16  # bytes


@dataclass
class Feed:
    """`descriptor` is the standard input for a process, `None` for that of this process.

    Call `start` once the process is started.
    """

    descriptor: int | None = None
    _giver: threading.Thread | None = None

    def start(self) -> None:
        """Let the data flow."""
        if self.descriptor is not None and self._giver is not None:
            # Now only the process has this end, so that the pipe breaks when it exits.
            os.close(self.descriptor)
            self._giver.start()


class StandardInput:
    """Standard input, from its position when this object is made."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._start: int | None = None  # position in a file
        self._kept: BinaryIO | None = None  # what was read from a pipe so far
        self._turn = threading.Lock()  # of who reads from the pipe; that of an earlier run may wait
        self._ended = False  # whether a pipe is at its end
        self._lost = ""  # why some data of a pipe could not be kept
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
        if self._lost:
            raise RewriterError(
                "input-lost",
                "the program has to run once more, and its standard input could not be kept: "
                f"{self._lost}",
                hint="Redirect it from a file (`< FILE`), or set TMPDIR to a directory with room.",
                code=FAILED,
            )
        if self._start is not None:
            os.lseek(self._descriptor, self._start, os.SEEK_SET)
        if self._kept is None:
            yield Feed()
            return
        reads, writes = os.pipe()
        giver = threading.Thread(target=self._give, args=(writes, self._kept), daemon=True)
        try:
            yield Feed(reads, giver)
        finally:
            if giver.ident is None:
                os.close(reads)
                os.close(writes)

    def _give(self, writes: int, kept: BinaryIO) -> None:
        """Pass on what was kept, and then new data, which is kept: a piece more than the process
        reads and the pipe holds."""
        position = 0
        with contextlib.suppress(BrokenPipeError), open(writes, "wb", buffering=0) as file:
            while piece := self._next(position, kept):
                position += len(piece)
                while piece:
                    piece = piece[file.write(piece) :]

    def _next(self, position: int, kept: BinaryIO) -> bytes:
        """The data at a position of the input; empty at its end."""
        # Without the lock: an earlier run may still wait for more, and hold it.
        if piece := os.pread(kept.fileno(), _PIECE, position):
            return piece
        with self._turn:
            piece = os.pread(kept.fileno(), _PIECE, position)
            while not piece and not self._ended:
                try:
                    select.select([self._descriptor], [], [])
                    piece = os.read(self._descriptor, _PIECE)
                except BlockingIOError:  # another process was faster
                    continue
                except OSError:  # it was closed, or a terminal went
                    piece = b""
                self._ended = not piece
                self._keep(piece, kept)
            return piece

    def _keep(self, piece: bytes, kept: BinaryIO) -> None:
        try:
            kept.seek(0, os.SEEK_END)
            while piece and not self._lost:
                piece = piece[kept.write(piece) :]
        except OSError as error:  # such as a full disk; only later runs need it
            self._lost = error.strerror or str(error)


def _is_empty(descriptor: int) -> bool:
    """Whether it is /dev/null."""
    facts = os.fstat(descriptor)
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == os.stat(os.devnull).st_rdev
