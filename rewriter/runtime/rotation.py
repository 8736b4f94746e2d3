"""Rotation: a dump keeps the last calls of each wrapper, within a limit of bytes.

A call is removed by first renaming its directory to a name that readers ignore. While somebody
reads the dump, no call is removed for its age: readers lock the file `READERS` in the dump.
`cpp/rotation.h` does the same, separately for each wrapper.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import shutil
import struct
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

READERS = ".readers"
_GONE = ".gone."
_SHARED = (".pt", "launches.json")  # files that may have hard links in several calls
_PATIENCE = 30.0  # seconds for which readers can keep calls from being removed
_LOCK = struct.Struct("@hhqqi0q")  # struct flock


@dataclass
class _Call:
    """A call that is over."""

    path: str
    owner: int  # identifies the wrapper
    rows: int = 0  # bytes of the files that belong to this call alone
    files: list[tuple[int, int]] = field(default_factory=list)  # shared: inode, bytes


class KeptCalls:
    """The calls of this process in one dump that are over.

    `used` is the number of bytes of the calls that were added with `counts`. Tensors are included
    only for calls that may be removed; elsewhere `Saved` limits them.
    """

    def __init__(self, root: str) -> None:
        self.used = 0
        self._root = root
        self._calls: deque[_Call] = deque()
        self._counts: Counter[int] = Counter()
        self._names: Counter[int] = Counter()  # links per inode, of shared files
        self._cleared: set[str] = set()
        self._since = 0.0  # when readers were first found to hold the lock; 0: they do not
        self._byte = 1 + random.getrandbits(40)
        self._lock = threading.Lock()

    def add(self, path: str, *, owner: int, keep: int, counts: bool) -> int:
        """Add a call that is over, and remove all but the last `keep` calls of its owner.

        `keep` 0 keeps all of them. Returns the bytes that the call added to `used`.
        """
        call = _Call(path, owner)
        with self._lock:
            before = self.used
            if counts:
                self._measure(call, tensors=keep > 0)
            brought = self.used - before
            if keep:
                self._calls.append(call)
                self._counts[owner] += 1
                self._keep(owner, keep)
        return brought

    def make_room(self, size: int, most: int) -> None:
        """Remove the oldest calls until `size` more bytes fit into the limit of `most` bytes."""
        with self._lock:
            while self._calls and self.used + size > most:
                self._remove(self._calls.popleft())

    def admit_readers(self) -> None:
        """Create the file that readers lock, before there is a call that they could read."""
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            os.close(os.open(f"{self._root}/{READERS}", flags, 0o666))

    def _keep(self, owner: int, keep: int) -> None:
        if self._counts[owner] <= keep:
            return
        file = self._lock_readers_out()
        if file is None:
            return
        try:
            while self._counts[owner] > keep:
                first = next(x for x in self._calls if x.owner == owner)
                self._calls.remove(first)
                self._remove(first)
        finally:
            if file >= 0:
                os.close(file)

    def _measure(self, call: _Call, *, tensors: bool) -> None:
        """Count the bytes of a call's files, in its directory alone unless `tensors`."""
        folders = [call.path]
        while folders:
            with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders += [entry.path] if tensors else []
                        continue
                    about = entry.stat(follow_symlinks=False)
                    if not entry.name.endswith(_SHARED):
                        call.rows += about.st_size
                        continue
                    call.files.append((about.st_ino, about.st_size))
                    self._names[about.st_ino] += 1
                    if self._names[about.st_ino] == 1:
                        self.used += about.st_size
        self.used += call.rows

    def _remove(self, call: _Call) -> None:
        self._counts[call.owner] -= 1
        self.used -= call.rows
        for number, size in call.files:
            self._names[number] -= 1
            if not self._names[number]:
                del self._names[number]
                self.used -= size
        ranked, _, name = call.path.rpartition("/")
        self._clear(ranked)
        gone = f"{ranked}/{_GONE}{os.getpid()}.{name}"
        # A user may have moved the directory away, to keep it.
        with contextlib.suppress(FileNotFoundError):
            os.rename(call.path, gone)
            shutil.rmtree(gone)

    def _clear(self, ranked: str) -> None:
        """Remove leftovers of a process that was killed while it removed a call."""
        if ranked in self._cleared:
            return
        self._cleared.add(ranked)
        with contextlib.suppress(FileNotFoundError), os.scandir(ranked) as entries:
            for entry in entries:
                if entry.name.startswith(_GONE):
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _lock_readers_out(self) -> int | None:
        """Lock readers out. Returns a descriptor to close when the calls are removed.

        Returns -1 if calls are to be removed without a lock: the file cannot be opened, or readers
        have held it for longer than `_PATIENCE`. Returns None if readers hold it for less than
        that. Readers lock the whole file, a process that removes calls one byte of its own.
        """
        lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, self._byte, 1, 0)
        try:
            file = os.open(f"{self._root}/{READERS}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return -1
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):  # a file system without locks
                return file
            os.close(file)
            now = time.monotonic()
            self._since = self._since or now
            return None if now - self._since < _PATIENCE else -1
        self._since = 0.0
        return file


_OPEN: dict[tuple[int, str], KeptCalls] = {}


def kept_in(root: str) -> KeptCalls:
    """The kept calls of a dump, shared by all wrappers of this process."""
    key = os.getpid(), root  # a fork must not remove the calls of its parent
    return _OPEN.setdefault(key, KeptCalls(root))
