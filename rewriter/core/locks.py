"""Locks on open files, without waiting: a lock lasts until the descriptor is closed."""

from __future__ import annotations

import fcntl


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file; `False` if another process holds the lock.

    `shared` locks exclude only locks that are not. Raises `OSError` if the file system has no
    locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
