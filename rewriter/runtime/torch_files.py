"""Saves tensors with `torch.save`, one after the other.

It is used where there is no engine, and for tensors that only torch can write, such as quantized
ones. Equal tensors are stored once, with hard links. A small tensor is recognised by its SHA-256; a
larger one by its sum and a sample of its elements, and then compared with the earlier file, which
takes less time than writing another.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import threading
from collections.abc import Hashable
from pathlib import Path

import torch
from torch import Tensor

_SMALL = 1 << 18  # bytes
_SAMPLES = 64
_MOST = 1 << 16  # files that are remembered
# Errors of a link that do not mean that the file system has no links.
_PASSING = (errno.EMLINK, errno.ENOENT, errno.EEXIST)


class TorchFiles:
    """Saves tensors of this process in one dump, and remembers their files."""

    def __init__(self) -> None:
        self._files: dict[Hashable, tuple[Path, Hashable]] = {}  # by `_key`; with their `_about`
        self._can_link = True
        self._lock = threading.Lock()

    def save(self, content: Tensor, path: Path) -> bool:
        """Save a tensor in a new file at `path`, whole or not at all.

        Returns false if a link to an earlier file was made instead. Raises `OSError` if the file
        cannot be written.
        """
        # Clone a view: it would be saved with its whole storage.
        content = content.to("cpu", copy=True)
        content = content.clone() if content._is_view() else content
        key = _key(content) if self._can_link else None
        with self._lock:
            known = None if key is None else self._files.get(key)
        path.parent.mkdir(exist_ok=True)
        is_link = known is not None and self._link(content, known, path)
        if not is_link:
            _write(content, path)
        if key is not None:
            about = _about(path)
            with self._lock:
                if len(self._files) >= _MOST:
                    self._files.clear()
                # Remember the newest name: the directories of earlier calls may be removed.
                self._files[key] = path, about
        return not is_link

    def _link(self, content: Tensor, saved: tuple[Path, Hashable], path: Path) -> bool:
        """Make `path` a hard link to an earlier file, if that is unchanged and has equal bytes."""
        known, about = saved
        try:
            if _about(known) != about:
                return False
            if _size(content) > _SMALL and not _holds(known, content):
                return False
            os.link(known, path)
        except OSError as error:
            if error.errno not in _PASSING:
                self._can_link = False
            return False
        return True


def _write(content: Tensor, path: Path) -> None:
    # A short name: the file's own may already have the greatest length that is allowed.
    temporary = path.with_name(f".writing.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
        temporary.replace(path)
    except RuntimeError as error:
        # torch's error says only what it was doing; its context says why that failed.
        cause = error.__context__
        raise (cause if isinstance(cause, OSError) else error) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _about(file: Path) -> Hashable:
    """The identity and modification time of a file; adding hard links changes neither."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _size(content: Tensor) -> int:
    return content.numel() * content.element_size()


def _key(content: Tensor) -> Hashable | None:
    """A key that equal tensors share; None for a tensor that is always written to a new file."""
    size = _size(content)
    if (
        content.is_quantized
        or content.is_conj()
        or content.is_neg()
        or type(content) is not Tensor
        or content.untyped_storage().nbytes() != size
    ):
        return None
    about = (content.dtype, tuple(content.shape), tuple(content.stride()))
    if size <= _SMALL:
        data = (ctypes.c_char * size).from_address(content.data_ptr()) if size else b""
        return (about, hashlib.sha256(data).digest())
    words = _words(content)
    samples = words[:: max(1, len(words) // _SAMPLES)].tolist()
    return (about, int(words.sum()), tuple(samples))


def _words(content: Tensor) -> Tensor:
    """The storage of a tensor as int64; up to seven bytes at its end are left out."""
    data = torch.empty(0, dtype=torch.uint8).set_(content.untyped_storage())
    return data[: len(data) // 8 * 8].view(torch.int64)


def _holds(file: Path, content: Tensor) -> bool:
    """Whether a file has the bytes of a tensor. Dtype, shape and strides are known to be equal."""
    other = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    rest = _size(content) % 8
    same = torch.equal(_words(other), _words(content))
    if not same or not rest:
        return same
    ends = [ctypes.string_at(x.data_ptr() + _size(x) - rest, rest) for x in (other, content)]
    return ends[0] == ends[1]
