"""Saves tensors with the engine: it copies them at once, and its threads write the files.

The C++ side is `cpp/engine/saver.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from os import fsencode
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .engine_library import declared
from .pickled import pickled_tensor

_MOST_LAYOUTS = 4096
# A GPU tensor that is not dense is cloned on the GPU up to this size; a larger one on the CPU.
_LARGEST_CLONE = 32 << 20  # bytes


class SaveResult(IntEnum):
    """`Saver::Result` of `cpp/engine/saver.h`."""

    FAULT = -1
    QUEUED = 0
    FULL = 1
    FAILED = 2
    REFUSED = 3


class _Layout(NamedTuple):
    """What is the same for all tensors of one dtype, shape and stride."""

    pickle: bytes
    size: int  # bytes
    is_dense: bool


class EngineFiles:
    """Saves tensors of this process in one dump, at most `most` bytes; 0 means no limit."""

    def __init__(self, functions: ctypes.CDLL, most: int) -> None:
        function = partial(declared, functions)
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        number, size = ctypes.c_int32, ctypes.c_uint64
        self._saver = function("saver", pointer, size, number, size)(most, 0, 0)
        if not self._saver:
            raise MemoryError("no memory for the engine")
        about = (text, text, size, pointer, size, number, pointer)
        self._save: Callable[..., int] = function("save", number, pointer, *about)
        self._last = function("last_save", size, pointer)
        self._wait = function("wait_for_save", None, pointer, size)
        self._restart = function("restart_saver", None, pointer, size)
        self._message = function("save_message", size, pointer, pointer, size)
        self._layouts: dict[tuple[object, ...], _Layout] = {}
        self._room = ctypes.create_string_buffer(4096)

    @staticmethod
    def takes(content: Tensor) -> bool:
        """Whether a tensor is plain: strided, not quantized, and not lazily conjugated or
        negated."""
        return not (
            content.layout is not torch.strided
            or type(content) is not Tensor
            or content.is_quantized
            or content.is_conj()
            or content.is_neg()
        )

    def save(self, content: Tensor, path: str | Path) -> int:
        """Save a plain tensor in a new file at `path`. Returns a `SaveResult`.

        The tensor may change afterwards. The file exists at the latest after `wait`.
        """
        layout = self._layout(content)
        if not layout.is_dense and not (content.is_cuda and layout.size <= _LARGEST_CLONE):
            content = content.to("cpu", copy=True)
        elif not layout.is_dense:
            # Freed on return; who reuses its memory does so behind the engine's copy on the stream.
            content = content.clone()
        elif not (content.is_cpu or content.is_cuda):
            content = content.to("cpu")
        if content.is_cuda:
            result = self._save_cuda(content, path)
            if result != SaveResult.REFUSED:
                return result
            content = content.to("cpu")
        return self._queue(content, path, 0, None)

    def last(self) -> int:
        """The number of the last save, for `wait`."""
        return int(self._last(self._saver))

    def wait(self, last: int) -> None:
        """Wait until all saves up to number `last` are in their files, or have failed."""
        self._wait(self._saver, last)

    def restart(self, used: int) -> None:
        """Count from `used` bytes on, and accept saves again after the limit was reached."""
        self._restart(self._saver, used)

    def take_message(self) -> str:
        """The message about failed saves since the last call; empty if there were none."""
        size = self._message(self._saver, self._room, len(self._room))
        return self._room.raw[:size].decode("utf-8", "replace") if size else ""

    def _save_cuda(self, content: Tensor, path: str | Path) -> int:
        index = content.get_device()
        is_current = torch.cuda.current_device() == index
        with contextlib.nullcontext() if is_current else torch.cuda.device(index):
            stream = torch._C._cuda_getCurrentRawStream(index)
            return self._queue(content, path, 1, stream)

    def _queue(self, content: Tensor, path: str | Path, on_device: int, stream: int | None) -> int:
        pickle, size, _ = self._layout(content)
        address = content.data_ptr()
        return self._save(
            self._saver, fsencode(path), pickle, len(pickle), address, size, on_device, stream
        )

    def _layout(self, content: Tensor) -> _Layout:
        key = (content.dtype, content.shape, content.stride())
        known = self._layouts.get(key)
        if known is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            known = self._layouts[key] = _Layout(
                pickled_tensor(*key),
                content.numel() * content.element_size(),
                _is_dense(content.shape, content.stride()),
            )
        return known


def _is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the elements fill one contiguous range of memory, without gaps or overlaps."""
    step = 1
    if 0 in shape:
        return True
    for dimension in sorted(range(len(shape)), key=lambda i: stride[i]):
        if shape[dimension] == 1:
            continue
        if stride[dimension] != step:
            return False
        step *= shape[dimension]
    return True
