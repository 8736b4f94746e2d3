"""Saves tensors with `torch.save`, one after the other: where there is no engine, and what only
torch can write, such as quantized tensors.

The same bytes are stored once, under several names. What is small is known again by its SHA-256.
What is larger is summed up, which memory is quick enough for, and compared with the file that may
be the same: reading that takes less time than writing another.
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
_PASSING = (errno.EMLINK, errno.ENOENT, errno.EEXIST)  # what is no fault of the file system's


class TorchFiles:
    """What this process saved in one dump, and how it knows it again."""

    def __init__(self) -> None:
        self._files: dict[Hashable, tuple[Path, Hashable]] = {}  # with what they were then
        self._can_link = True
        self._lock = threading.Lock()

    def save(self, content: Tensor, path: Path) -> bool:
        """Save a tensor under a name that is free, whole or not at all; whether that took bytes.

        Raises `OSError` where it cannot be written.
        """
        # A copy of its own: a view would be saved with all of the memory that it looks at.
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
                # The last one: the directories of earlier calls may be removed.
                self._files[key] = path, about
        return not is_link

    def _link(self, content: Tensor, saved: tuple[Path, Hashable], path: Path) -> bool:
        """Make another name of a file, if it has the same bytes and nobody wrote to it since."""
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
    # Not longer than a name may be: the file's own may be as long as that.
    temporary = path.with_name(f".writing.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
        temporary.replace(path)
    except RuntimeError as error:
        # torch's writer says what it was doing; the system knows why that failed.
        cause = error.__context__
        raise (cause if isinstance(cause, OSError) else error) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _about(file: Path) -> Hashable:
    """Which file it is, and as of when; further names of it change neither."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _size(content: Tensor) -> int:
    return content.numel() * content.element_size()


def _key(content: Tensor) -> Hashable | None:
    """What tensors have in common that may be the same file; `None` for what is saved as it is."""
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
    """The bytes of a tensor, eight at a time; less than eight at the end are left out."""
    data = torch.empty(0, dtype=torch.uint8).set_(content.untyped_storage())
    return data[: len(data) // 8 * 8].view(torch.int64)


def _holds(file: Path, content: Tensor) -> bool:
    """Whether a file holds the bytes of a tensor, of the same dtype, shape and strides."""
    other = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    rest = _size(content) % 8
    same = torch.equal(_words(other), _words(content))
    if not same or not rest:
        return same
    ends = [ctypes.string_at(x.data_ptr() + _size(x) - rest, rest) for x in (other, content)]
    return ends[0] == ends[1]
