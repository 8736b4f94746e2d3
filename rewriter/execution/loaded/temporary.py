"""A temporary directory that goes with its object, and has nobody wait for that."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import shutil
import tempfile
import weakref
from functools import cache
from pathlib import Path

# The directories that are there, each with the process that made it: a fork has none of them.
_LEFT: dict[str, int] = {}


class TemporaryDump:
    """A directory that is removed with the object, by a thread of its own: to remove thousands of
    files where other threads compute takes seconds, in which the one that dropped the object would
    stand still. What is left when the program ends is removed then."""

    def __init__(self) -> None:
        _remove_all_at_end()
        self.path = Path(tempfile.mkdtemp(prefix="rewriter-", suffix=".dump"))
        _LEFT[str(self.path)] = os.getpid()
        weakref.finalize(self, _remove_later, str(self.path)).atexit = False

    def remove(self) -> None:
        """Remove it now."""
        _remove(str(self.path))


def _remove_later(path: str) -> None:
    # The garbage collector may call this anywhere: `Thread.start` takes locks, and waits.
    with contextlib.suppress(RuntimeError):  # no more threads: it goes at the end
        _thread.start_new_thread(_remove, (path,))


def _remove(path: str) -> None:
    if _LEFT.get(path) == os.getpid():
        shutil.rmtree(path, ignore_errors=True)
        _LEFT.pop(path, None)


def _remove_all() -> None:
    for path in list(_LEFT):
        _remove(path)


@cache
def _remove_all_at_end() -> None:
    atexit.register(_remove_all)
