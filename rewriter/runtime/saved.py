"""Saves tensors of a process in the files of a dump: equal bytes once, up to a limit of bytes.

A tensor that was saved before becomes a hard link to the earlier file, so every path in the dump is
a regular file, also in a copy of the dump. A file appears under its name once it is complete.
"""

from __future__ import annotations

import atexit
import errno
import os
from pathlib import Path

import torch
from torch import Tensor

from .engine_files import EngineFiles, SaveResult
from .engine_library import EngineUnavailable, load
from .process import read_rank, say
from .torch_files import TorchFiles

_OPEN: dict[tuple[int, Path, int], Saved] = {}
_FINAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # later writes would fail as well
_LATER = "the disk had no room for what came before it"


def saved_in(root: Path, most: int = 0) -> Saved:
    """The saved tensors of a dump, shared by all wrappers of this process with this limit."""
    key = os.getpid(), root, most  # a fork inherits savers, and not the threads that write
    if key not in _OPEN:
        _OPEN[key] = Saved(most)
    return _OPEN[key]


class Saved:
    """Saves tensors of this process in one dump, at most `most` bytes; 0 means no limit."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._used = 0  # bytes written by `TorchFiles`
        self._is_full = self._has_failed = False
        self._warned: set[str] = set()
        self._by_torch = TorchFiles()
        library = load()
        self._by_engine = (
            None if isinstance(library, EngineUnavailable) else EngineFiles(library.functions, most)
        )
        self._pid = os.getpid()
        atexit.register(self.drain)

    def save(self, content: Tensor, path: str | Path) -> str:
        """Save a tensor, on any device, in a new file at `path`.

        Returns an empty text, or why it is not saved. The tensor may change afterwards. The file
        exists at the latest after `drain`.
        """
        if content.layout is not torch.strided:
            content = content.to_dense()
        if self._is_full:
            return self._full()
        if self._has_failed:
            return _LATER
        if self._by_engine is None or not self._by_engine.takes(content):
            return self._save_by_torch(content, path)
        result = self._by_engine.save(content, path)
        self._report()
        if result == SaveResult.QUEUED:
            return ""
        if result == SaveResult.FULL:
            return self._full()
        return _LATER if result == SaveResult.FAILED else "there is no memory to copy it to"

    def restart(self, used: int) -> None:
        """Count from `used` bytes on, since old calls were removed from the dump."""
        self._used, self._is_full = used, False
        if self._by_engine is not None:
            self._by_engine.restart(used)

    def last(self) -> int:
        """The number of the last save, for `wait`; 0 without the engine."""
        return self._by_engine.last() if self._by_engine else 0

    def wait(self, last: int) -> None:
        """Wait until all saves up to number `last` are in their files, or have failed."""
        if self._by_engine and self._pid == os.getpid():
            self._by_engine.wait(last)

    def drain(self) -> None:
        """Wait until all saved tensors are in their files, and warn about those that failed."""
        self.wait(self.last())
        self._report()

    def _save_by_torch(self, content: Tensor, path: str | Path) -> str:
        size = content.numel() * content.element_size()
        if self._most and self._used + size > self._most:
            return self._full()
        try:
            self._used += size if self._by_torch.save(content, Path(path)) else 0
        except OSError as error:
            is_final = error.errno in _FINAL
            more = "; nothing more is saved, and the model runs on" if is_final else ""
            self._warn(f"{path} cannot be saved: {error.strerror or error}{more}")
            self._has_failed = self._has_failed or is_final
            return error.strerror or str(error)
        return ""

    def _full(self) -> str:
        self._is_full = True
        self._warn(
            f"--max-bytes: with this tensor there would be more than {self._most} bytes; nothing "
            "more is saved, and the model runs on"
        )
        return "--max-bytes was reached"

    def _report(self) -> None:
        if self._by_engine and (message := self._by_engine.take_message()):
            self._warn(message)

    def _warn(self, message: str) -> None:
        about = message.rpartition(": ")[2]  # the reason: warned about for one file only
        if about not in self._warned:
            self._warned.add(about)
            say(f"[rewriter {read_rank()}] warning: save: {message}\n")
