"""The file `events.jsonl` with one call's rows. It holds whole rows, even if the disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a write for which the disk or quota has no room."""


class EventsFile:
    """A new file to which `append` writes rows, unbuffered.

    If the disk is full, `make_room` is called and the write is tried once more: it waits for
    tensors that are being saved, which may fail as well and free their space.
    """

    def __init__(self, path: str | Path, make_room: Callable[[], None]) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._make_room = make_room
        self._failed = False

    def append(self, rows: bytes) -> None:
        """Append rows. At the first failure, removes what was written of them, raises `OSError`,
        and writes nothing more from then on: rows with a gap between them would be misread."""
        if self._failed:
            return
        left, may_try_again = rows, True
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                if error.errno in NO_ROOM and may_try_again:
                    may_try_again = False
                    self._make_room()
                    continue
                self._failed = True
                end = os.lseek(self._descriptor, 0, os.SEEK_END)
                os.ftruncate(self._descriptor, end - (len(rows) - len(left)))
                why = f"{os.strerror(error.errno or 0)}; no more rows of this call"
                raise OSError(error.errno, why) from error

    def duplicate(self) -> int:
        """A duplicate of the file descriptor, which the caller has to close."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, with as many system calls as that takes."""
    while (written := os.write(descriptor, data)) < len(data):
        data = data[written:]
