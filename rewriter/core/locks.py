"""Locks on open files, without waiting: a lock lasts until the descriptor is closed."""

from __future__ import annotations

import fcntl


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file; `False` where another process holds it.

    A `shared` lock goes together with other shared ones. Raises `OSError` where the file system
    has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
