"""Locks on open files, without waiting: a lock lasts until the descriptor is closed."""

from __future__ import annotations

import fcntl


def take(descriptor: int) -> bool:
    """Lock an open file; `False` if another process holds the lock. Raises `OSError` if the file
    system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
