"""Compares saved tensors, file by file, in bounded memory.

A file is read block by block while it is measured, and never mapped: if it is truncated meanwhile,
that is an error and not a crash. For a dump of many small tensors, `torch.load` would take longer
than everything else, so the layout in a pickle is cached: tensors of one dtype and shape have the
same pickle.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from rewriter.comparison.dumps import metrics
from rewriter.comparison.dumps.metrics import BLOCK, Reader, check
from rewriter.comparison.dumps.types import Metrics, Tolerance
from rewriter.core.strides import is_dense, memory_order
from rewriter.dump.document_files import corrupt
from rewriter.dump.saved import load

# Files up to this size take more time in the interpreter than in torch, so threads do not help.
_SMALL_FILE = 1 << 18
# More threads than this would wait for each other's hold of the interpreter.
_MOST_WORKERS = 4

Pair = tuple[Path, Path, Tolerance]


def compare_many(pairs: Iterable[Pair]) -> Iterator[Metrics]:
    """Compare the tensors of pairs of files in order, some of them ahead of the one that is needed
    next.

    Both tensors of a pair have the same number of elements. If their shapes differ, one is a view
    of the other, and both are compared in row-major order. Raises `RewriterError` at the position
    of the pair if a file is damaged or has no tensor that can be compared.
    """
    workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    # Each thread computes alone: torch's own threads would only wait for each other.
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        ahead: deque[Callable[[], Metrics]] = deque()
        for a, b, tolerance in pairs:
            work = partial(_compare, a, b, tolerance)
            is_small = max(_size(a), _size(b)) <= _SMALL_FILE
            ahead.append(work if is_small else pool.submit(work).result)
            if len(ahead) > 8 * workers:
                yield ahead.popleft()()
        while ahead:
            yield ahead.popleft()()
    finally:
        pool.shutdown(cancel_futures=True)


def _compare(a: Path, b: Path, tolerance: Tolerance) -> Metrics:
    one, other = _open(a), _open(b)
    if one.numel != other.numel:
        raise corrupt(a, f"it is of shape {one.shape}, {b} of {other.shape}")
    # The order of the dimensions in memory, if both have the same and their elements fill it.
    order = one.order if one.numel else None
    if order is None or one.shape != other.shape or order != other.order:
        x, y = _load(a), _load(b)
        if x.shape != y.shape:
            x, y = x.reshape(-1), y.reshape(-1)
        return metrics.compare(x, y, tolerance)
    with _reader(one) as read_a, _reader(other) as read_b:
        totals = metrics.measure(read_a, read_b, one.numel, tolerance)
    return totals.metrics(one.shape, order)


@dataclass(frozen=True)
class _Saved:
    """A tensor in a file; its first element is at byte `start`."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def order(self) -> tuple[int, ...] | None:
        """The dimensions in memory order; `None` if the elements do not fill the memory."""
        is_filled = is_dense(self.shape, self.stride)
        return memory_order(self.shape, self.stride) if is_filled else None


# By their pickles; `start` is where they begin in their storage.
_layouts: dict[bytes, _Saved] = {}
_MOST_LAYOUTS = 4096


def _open(path: Path) -> _Saved:
    try:
        archive = torch._C.PyTorchFileReader(str(path))
        pickled = archive.get_record("data.pkl")
        byteorder = archive.get_record("byteorder").decode()
        start = archive.get_record_offset("data/0")  # type: ignore[attr-defined]
    except RuntimeError as error:
        raise corrupt(path, "it is no whole file that torch.save wrote") from error
    if byteorder != sys.byteorder:
        raise corrupt(path, f"it is of a {byteorder}-endian machine: compare it there")
    layout = _layouts.get(pickled)
    if layout is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        tensor = _load(path)
        check(tensor.dtype)
        inside = int(tensor.storage_offset()) * tensor.itemsize
        layout = _Saved(path, tensor.dtype, tuple(tensor.shape), tensor.stride(), inside)
        _layouts[pickled] = layout
    return replace(layout, path=path, start=start + layout.start)


def _load(path: Path) -> torch.Tensor:
    tensor = load(path)
    if tensor.layout != torch.strided:
        raise corrupt(path, f"it holds a tensor of layout {tensor.layout}, not a dense one")
    return tensor.detach()


@contextmanager
def _reader(saved: _Saved) -> Iterator[Reader]:
    """Yield a function that reads into one buffer: its result is valid until the next call."""
    dtype = saved.dtype
    buffer = bytearray(min(saved.numel, BLOCK) * dtype.itemsize)
    whole = torch.frombuffer(buffer, dtype=torch.uint8).view(dtype)
    with saved.path.open("rb", buffering=0) as file:

        def read(first: int, last: int) -> torch.Tensor:
            size = (last - first) * dtype.itemsize
            file.seek(saved.start + first * dtype.itemsize)
            if file.readinto(memoryview(buffer)[:size]) != size:
                raise corrupt(saved.path, f"it ends before element {last} of {saved.numel}")
            return whole if last - first == len(whole) else whole[: last - first]

        yield read


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise corrupt(path, error.strerror or "it cannot be read") from error
