"""Marks that a CUDA graph leaves in host memory: which launch its replay began and ended last.

A replay runs no host code, and after a fault in it device memory cannot be read. So a write of 32
bits is captured before and after each launch. The writes go to host memory that is registered with
CUDA and mapped from a file in /dev/shm (CUDA cannot register files on a disk). That memory outlives
both the fault and the process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import json
import mmap
import os
import tempfile
from pathlib import Path
from typing import Protocol

import torch

from .event import Event
from .running_call import RunningCall

FOLDER = "/dev/shm"
_SIZE = 1 << 16  # bytes
_WORD = 4
_LAUNCHES = 20  # bits for the index of the launch; the others are for its iteration
_ITERATIONS = 12
_MAPPED_PORTABLE = 3


class Device(Protocol):
    """The CUDA functions that marks need."""

    def register(self, address: int, size: int) -> bool:
        """Register host memory, so that the device can write to it at the same address."""

    def write(self, address: int, value: int) -> bool:
        """Issue a write of 32 bits to the current stream."""

    def wait(self) -> None:
        """Wait for all issued work. Raises torch's error if the device failed."""


class GraphMarks:
    """The marks of one process.

    A slot is a pair of words for one call and one stream: the launch that began last and the one
    that ended last, each with its iteration.
    """

    def __init__(self, root: Path, device: Device) -> None:
        self._device = device
        self._pid = os.getpid()
        self._slots: dict[tuple[str, int], int] = {}
        descriptor, self._path = tempfile.mkstemp(prefix="rewriter-marks-", dir=FOLDER)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.works = device.register(self._address, _SIZE)
        self._record = root / f"graph-marks-{os.getpid()}.jsonl"
        if self.works:
            root.mkdir(parents=True, exist_ok=True)
            facts = {"format": "rewriter.graph-marks", "version": 1, "pid": os.getpid()}
            self._append({**facts, "memory": self._path})
            atexit.register(self._finish)
        else:
            os.unlink(self._path)

    def leave(self, event: Event, call: RunningCall, stream: int) -> bool:
        """Capture the mark for an event of a launch. Returns false if that is not possible."""
        if not self.works or event.launch is None or call.directory is None:
            return False
        run = "/".join(Path(call.directory.name).parts[-2:])
        slot = self._slots.get((run, stream))
        ok = True
        if slot is None:
            slot = len(self._slots)
            if (slot + 1) * 2 * _WORD > _SIZE:
                return False
            self._slots[run, stream] = slot
            self._append({"slot": slot, "run": run, "stream": len(self._slots) - 1})
            # Each replay first clears the mark that the previous replay ended with.
            ok = self._write(slot, 1, 0)
        call.note(event, {"captured": True})  # so that the dump has a row for this launch
        value = min(event.iteration, (1 << _ITERATIONS) - 1) << _LAUNCHES | (event.launch.index + 1)
        return self._write(slot, int(event.phase == "after"), value) and ok

    def _write(self, slot: int, word: int, value: int) -> bool:
        return self._device.write(self._address + (2 * slot + word) * _WORD, value)

    def _append(self, row: dict[str, object]) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")

    def _finish(self) -> None:
        """At exit: write the marks into the dump, and remove their file."""
        if os.getpid() != self._pid:
            return  # a fork: the marks are its parent's
        with contextlib.suppress(Exception):  # a device that faulted raises its error again
            self._device.wait()
        words = array.array("I", self._memory[: 2 * len(self._slots) * _WORD])
        with contextlib.suppress(OSError):  # the dump may be gone
            self._append({"marks": words.tolist()})
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class Cuda:
    """The CUDA driver. Its 32-bit writes can be captured, and need no device memory."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")

    def register(self, address: int, size: int) -> bool:
        where, pointer = ctypes.c_void_p(address), ctypes.c_uint64()
        if self._driver.cuMemHostRegister_v2(where, ctypes.c_size_t(size), _MAPPED_PORTABLE):
            return False
        code = self._driver.cuMemHostGetDevicePointer_v2(ctypes.byref(pointer), where, 0)
        return not code and pointer.value == address

    def write(self, address: int, value: int) -> bool:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointer, one = ctypes.c_uint64(address), ctypes.c_size_t(1)
        return not self._driver.cuMemsetD32Async(pointer, ctypes.c_uint(value), one, stream)

    def wait(self) -> None:
        torch.cuda.synchronize()


_marks: dict[str, GraphMarks | None] = {}  # by dump


def start(root: Path) -> None:
    """Prepare marks for the captures that follow. Must not be called during a capture."""
    if str(root) not in _marks:
        _marks[str(root)] = None
        if torch.version.cuda is not None and os.path.isdir(FOLDER):
            with contextlib.suppress(OSError, AttributeError):  # no driver, or one without these
                _marks[str(root)] = GraphMarks(root, Cuda())


def leave(root: Path, event: Event, call: RunningCall) -> bool:
    """Capture the mark for an event on the current stream; false if that is not possible."""
    marks = _marks.get(str(root))
    return marks is not None and marks.leave(event, call, torch.cuda.current_stream().cuda_stream)
