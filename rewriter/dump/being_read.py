"""Tells a program that removes old calls of its dump (`--keep`) that the dump is being read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
import weakref
from pathlib import Path

READERS = ".readers"  # the file that readers lock: `runtime/cpp/rotation.h`
_ATTEMPTS, _PAUSE = 500, 0.002  # the pause in seconds
_LOCK = struct.Struct("@hhqqi0q")  # struct flock


class Reading:
    """Holds a lock as long as it exists."""

    def __init__(self, file: int) -> None:
        self._finalizer = weakref.finalize(self, os.close, file)


def hold(path: Path) -> Reading | None:
    """Keep programs from removing calls of a dump, or of the dump that this is a part of, as long
    as the result exists, but no longer than they wait. `None` if no program removes any."""
    for directory in (path, *path.absolute().parents[:2]):
        with contextlib.suppress(OSError):
            file = os.open(directory / READERS, os.O_RDONLY | os.O_CLOEXEC)
            if not _lock(file):
                os.close(file)
                return None
            return Reading(file)
    return None


def _lock(file: int) -> bool:
    """Try to lock. A program that removes a call holds one byte of the file for a moment."""
    lock = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    for _ in range(_ATTEMPTS):
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):  # a file system without locks
                return False
            time.sleep(_PAUSE)
        else:
            return True
    return False
