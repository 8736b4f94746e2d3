"""Which calls stay in a dump: of each wrapper the last ones, within so many bytes.

A call that goes gets a name that no reader looks at, in one step, and is removed then. While
somebody reads the dump nothing goes for its age: readers lock a file beside the calls (`READERS`).
`cpp/rotation.h` does the same, for each wrapper by itself.
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
_SHARED = (".pt", "launches.json")  # of which several calls may have one file
_PATIENCE = 30.0  # seconds that readers have
_LOCK = struct.Struct("@hhqqi0q")  # struct flock


@dataclass
class _Call:
    """A call that is over: how many bytes its rows have, and which files it has that others may
    have, too."""

    path: str
    owner: int
    rows: int = 0
    files: list[tuple[int, int]] = field(default_factory=list)


class KeptCalls:
    """The calls of this process in one dump that are over; `used` is how many bytes those of them
    have that were added to be counted: of calls that go their tensors, too, which have a limit of
    their own in others."""

    def __init__(self, root: str) -> None:
        self.used = 0
        self._root = root
        self._calls: deque[_Call] = deque()
        self._counts: Counter[int] = Counter()
        self._names: Counter[int] = Counter()  # of files that several calls may have
        self._cleared: set[str] = set()
        self._since = 0.0  # when readers were met
        self._byte = 1 + random.getrandbits(40)
        self._lock = threading.Lock()

    def add(self, path: str, *, owner: int, keep: int, counts: bool) -> int:
        """The call of this directory is over; of those of its owner the last `keep` stay, 0 for all
        of them. How many bytes it brought, where it is counted."""
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
        """Let the oldest calls go until with so many bytes more there are no more than `most`."""
        with self._lock:
            while self._calls and self.used + size > most:
                self._remove(self._calls.popleft())

    def admit_readers(self) -> None:
        """Have them find what they lock, before a call is there that they could read."""
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
        # Somebody may have moved it away, to keep it.
        with contextlib.suppress(FileNotFoundError):
            os.rename(call.path, gone)
            shutil.rmtree(gone)

    def _clear(self, ranked: str) -> None:
        """Remove what a process left that was killed while it removed a call."""
        if ranked in self._cleared:
            return
        self._cleared.add(ranked)
        with contextlib.suppress(FileNotFoundError), os.scandir(ranked) as entries:
            for entry in entries:
                if entry.name.startswith(_GONE):
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _lock_readers_out(self) -> int | None:
        """A file to close once calls were removed, -1 without one; `None` while somebody reads the
        dump, and has not done so for long.

        Readers lock all of the file, and who removes calls a byte of its own.
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


_OPEN: dict[str, KeptCalls] = {}


def kept_in(root: str) -> KeptCalls:
    """The calls of a dump, for all wrappers of this process."""
    return _OPEN.setdefault(root, KeptCalls(root))
