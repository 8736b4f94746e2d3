"""Marks that a CUDA graph leaves in host memory: which launch its replay began and ended last.

A replay runs no host code, and a fault in it takes the memory of the device along. So two writes of
32 bits are captured around each launch. They go to memory that is registered with CUDA and lies in
a file under /dev/shm (CUDA registers none on a disk): it outlives the fault, and the process too.
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
_LAUNCHES = 20  # bits; the others count how often the launch came
_ITERATIONS = 12
_MAPPED_PORTABLE = 3


class Device(Protocol):
    """What marks need of CUDA."""

    def register(self, address: int, size: int) -> bool:
        """Let kernels and copies write to memory of the host, at its own address."""

    def write(self, address: int, value: int) -> bool:
        """Have 32 bits written when the current stream comes to it."""

    def wait(self) -> None:
        """Wait for what was issued. Raises what went wrong."""


class GraphMarks:
    """The marks of one process. A slot is a pair of words, for one call and one stream: the launch
    that began last, and the one that ended last, each with its iteration."""

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
        """Capture the mark of an event of a launch; false where that cannot be done."""
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
            # What a replay before this one ended with is not what this one did.
            ok = self._write(slot, 1, 0)
        call.note(event, {"captured": True})  # what a mark is about has a row
        value = min(event.iteration, (1 << _ITERATIONS) - 1) << _LAUNCHES | (event.launch.index + 1)
        return self._write(slot, int(event.phase == "after"), value) and ok

    def _write(self, slot: int, word: int, value: int) -> bool:
        return self._device.write(self._address + (2 * slot + word) * _WORD, value)

    def _append(self, row: dict[str, object]) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")

    def _finish(self) -> None:
        """The process ends by itself: what the marks are goes into the dump."""
        if os.getpid() != self._pid:
            return  # a fork, which has them of the process that it was made by
        with contextlib.suppress(Exception):  # a device that faulted says so again
            self._device.wait()
        words = array.array("I", self._memory[: 2 * len(self._slots) * _WORD])
        with contextlib.suppress(OSError):  # the dump may be gone
            self._append({"marks": words.tolist()})
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class Cuda:
    """The driver of CUDA. Its writes can be captured, and need no memory of the device."""

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
    """See to it that the next capture can leave marks. Not while there is one."""
    if str(root) not in _marks:
        _marks[str(root)] = None
        if torch.version.cuda is not None and os.path.isdir(FOLDER):
            with contextlib.suppress(OSError, AttributeError):  # no driver, or one without these
                _marks[str(root)] = GraphMarks(root, Cuda())


def leave(root: Path, event: Event, call: RunningCall) -> bool:
    """Capture the mark of an event; false where that cannot be done."""
    marks = _marks.get(str(root))
    return marks is not None and marks.leave(event, call, torch.cuda.current_stream().cuda_stream)
