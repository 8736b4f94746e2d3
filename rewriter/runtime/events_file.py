"""The file of one call's rows. What is in it is readable, also where the disk was full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What a system answers where the disk has no room for a write."""


class EventsFile:
    """A new file that whole rows are appended to, each of them there once `append` is back.

    `make_room` is called where the disk is full: what else is being written may have failed, too,
    and give its room back. Then the rows are tried once more.
    """

    def __init__(self, path: str | Path, make_room: Callable[[], None]) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._make_room = make_room
        self._failed = False

    def append(self, rows: bytes) -> None:
        """Append rows. The first time that this fails raises `OSError`, and what was written of
        them is taken back; there are no more rows then: some with a gap would be misread."""
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
        """Another descriptor of it, for whoever closes that."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, waiting for whoever reads it."""
    while (written := os.write(descriptor, data)) < len(data):
        data = data[written:]
