"""The file of one call's rows. What is in it is readable, also where the disk was full."""

from __future__ import annotations

import os
from pathlib import Path


class EventsFile:
    """A new file that whole rows are appended to, each of them there once `append` is back."""

    def __init__(self, path: str | Path) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._failed = False

    def append(self, rows: bytes) -> None:
        """Append rows. The first time that this fails raises `OSError`, and what was written of
        them is taken back; there are no more rows then: some with a gap would be misread."""
        if self._failed:
            return
        left = rows
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
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
