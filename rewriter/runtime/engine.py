"""Measures tensors with the engine: statistics and a fingerprint, in one pass over each."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import fingerprint, statistics
from .cache_directory import cache_directory
from .engine_library import EngineLibrary, EngineUnavailable, kernel_source, load
from .statistics import Statistics

MEASURED = struct.Struct("=4q2Q2d2Qq")
"""The struct `Measured` of `cpp/engine/measured.h`."""

_LAYOUT = struct.Struct("@iiqPPi")
_MOST = 4096  # layouts in the cache

_NAMES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
    *("quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"),
    *("uint16", "uint32", "uint64"),
    *(f"uint{bits}" for bits in range(1, 8)),
    *(f"int{bits}" for bits in range(1, 8)),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
)
"""The name of each dtype at the place of its number, as in `cpp/dtype.h`."""


class Measurement(NamedTuple):
    """The statistics and fingerprint of a tensor; None and empty if it has no readable elements.

    `fingerprint` has 32 hexadecimal digits. It is computed from the elements' bytes in row-major
    order, and so does not depend on strides or device. Packed and quantized dtypes have no
    statistics.
    """

    statistics: Statistics | None
    fingerprint: str


NOTHING = Measurement(None, "")


class _Layout(NamedTuple):
    """What the engine needs to know about tensors of one shape, stride and dtype."""

    address: int  # of the engine's struct `Layout`, which lies in `memory`
    numel: int
    extent: int  # bytes from the first element to the end of the last
    dtype: torch.dtype
    memory: object


class Capture(NamedTuple):
    """Tensors whose measurement was captured into a CUDA graph: each replay measures them."""

    device: int
    first: int  # the engine's number for the first tensor; the others follow
    layouts: tuple[_Layout, ...]

    def read(self) -> tuple[int, list[Measurement]]:
        """The number of replays so far, and what the last one measured. Does not wait."""
        library, replays, result = _library(), 0, []
        room = ctypes.create_string_buffer(MEASURED.size)
        for place, layout in enumerate(self.layouts):
            replays = library.functions.inductor_rewriter_gpu_captured(
                self.device, self.first + place, room
            )
            if not replays:
                return 0, []
            result.append(decode(MEASURED.unpack(room.raw), layout.dtype, layout.numel))
        return replays, result


class MeasurementError(RuntimeError):
    """A measurement that was issued did not finish: the device failed."""


def measure(tensors: Sequence[Tensor]) -> list[Measurement]:
    """Measure each of ``tensors``. For those on a GPU, waits for its current stream.

    Raises:
        MeasurementError: the device failed.
    """
    result = [NOTHING] * len(tensors)
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        for device, group in _groups(tensors).items():
            count = len(group.places)
            room = ctypes.create_string_buffer(MEASURED.size * count)
            if device is not None and _measure_there(device, group, room):
                for place, layout, row in zip(
                    group.places, group.layouts, MEASURED.iter_unpack(room.raw), strict=True
                ):
                    result[place] = decode(row, layout.dtype, layout.numel)
            else:
                for place in group.places:
                    result[place] = measure_by_operators(tensors[place])
    return result


def capture(tensors: Sequence[Tensor]) -> Capture | None:
    """Capture the measurement of ``tensors``, all on one GPU whose current stream is capturing.

    None if the engine cannot measure them. It must have been started before the capture (`start`).
    """
    with torch._C.DisableTorchFunction(), torch.no_grad():
        groups = _groups(tensors)
        if len(groups) != 1:
            return None
        ((device, group),) = groups.items()
        if device is None or device < 0:
            return None
        stream = torch._C._cuda_getCurrentRawStream(device)
        first = _library().functions.inductor_rewriter_gpu_capture(
            device, *group.pointers(), len(group.places), stream
        )
        return Capture(device, first, tuple(group.layouts)) if first >= 0 else None


@cache
def start(device: int) -> str:
    """Start the engine on a GPU, once per process. Returns an empty text, or why that failed.

    Tensors on a GPU where it failed are measured by torch's operators.
    """
    library = load()
    if isinstance(library, EngineUnavailable):
        return str(library)
    directory = cache_directory("engine")
    torch_library = Path(torch.__file__).parent / "lib"
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # with the next line: creates the CUDA context
        torch.empty(1, device=f"cuda:{device}")
        problem = library.functions.inductor_rewriter_gpu_start(
            device, kernel_source(), os.fsencode(torch_library), os.fsencode(directory or "")
        )
    return problem.decode(errors="replace") if problem else ""


def about(device: int) -> str:
    """Which compiler made the measuring kernel of a GPU that was started, such as NVRTC 12.9."""
    text: bytes = _library().functions.inductor_rewriter_gpu_about(device)
    return text.decode()


@dataclass
class _Group:
    """Tensors of one device."""

    places: list[int] = field(default_factory=list)  # in the list that was to be measured
    layouts: list[_Layout] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # keeps the memory at `addresses` alive

    def pointers(self) -> tuple[bytes, bytes]:
        count = len(self.places)
        layouts = [layout.address for layout in self.layouts]
        return struct.pack(f"{count}P", *layouts), struct.pack(f"{count}P", *self.addresses)


def _groups(tensors: Sequence[Tensor]) -> dict[int | None, _Group]:
    """The tensors that can be measured, by device: -1 for the CPU, None for those that the engine
    cannot measure and torch's operators have to."""
    groups: dict[int | None, _Group] = {}
    is_loaded = not isinstance(load(), EngineUnavailable)
    for place, tensor in enumerate(tensors):
        device: int | None = -1 if tensor.is_cpu else None
        if tensor.is_cuda and not start(tensor.get_device()):
            device = tensor.get_device()
        if not is_loaded or tensor.layout is not torch.strided or tensor.is_nested:
            device = None
        if device is not None and (tensor.is_conj() or tensor.is_neg()):
            tensor = tensor.resolve_conj().resolve_neg()
        layout = None
        if device is not None:
            layout = _layout(tensor.shape, tensor.stride(), tensor.dtype)
        if layout is None:
            groups.setdefault(None, _Group()).places.append(place)
            continue
        if not _has_memory(tensor, layout):
            continue
        group = groups.setdefault(device, _Group())
        group.places.append(place)
        group.layouts.append(layout)
        group.addresses.append(tensor.data_ptr())
        group.kept.append(tensor)
    return groups


def _measure_there(device: int, group: _Group, room: Any) -> bool:
    functions, count = _library().functions, len(group.places)
    if device < 0:
        threads = torch.get_num_threads()
        measured: int = functions.inductor_rewriter_measure(*group.pointers(), count, threads, room)
        return measured == count
    stream = torch._C._cuda_getCurrentRawStream(device)
    with torch.cuda.device(device):
        first = functions.inductor_rewriter_gpu_issue(
            device, *group.pointers(), count, stream, True
        )
        if not first:
            return False
        problem = functions.inductor_rewriter_gpu_fetch(device, first, count, stream, room)
    if problem:
        raise MeasurementError(problem.decode(errors="replace"))
    return True


def _library() -> EngineLibrary:
    library = load()
    assert isinstance(library, EngineLibrary)
    return library


def measure_by_operators(tensor: Tensor) -> Measurement:
    """Measure a tensor by torch's operators, on any device that has float64."""
    record = statistics.measure(tensor)
    if tensor.is_nested or not statistics.has_memory(tensor):
        return NOTHING
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    pieces = (
        block.resolve_conj().resolve_neg().contiguous() for block in statistics.blocks(tensor)
    )
    total = fingerprint.total(pieces, tensor.device)
    (found,) = statistics.collect([record])
    return Measurement(found, fingerprint.text(total, tensor.numel() * tensor.element_size()))


def decode(row: tuple[Any, ...], dtype: torch.dtype, numel: int) -> Measurement:
    """Make a `Measurement` of an unpacked struct `Measured`."""
    finite, nan, positive, negative, low, high, mean, deviation, first, second, near = row
    text = f"{first:016x}{second:016x}"
    if finite == -1:
        return Measurement(None, text)
    of = "magnitude" if dtype.is_complex else "value"
    if not finite:
        none = Statistics(numel, None, None, None, None, nan, positive, negative, of)
        return Measurement(none, text)
    lowest, highest = statistics.decode_extremes(dtype, low, high)
    spread = deviation if finite > 1 else None
    known = Statistics(numel, lowest, highest, mean, spread, nan, positive, negative, of, near)
    return Measurement(known, text)


@cache
def dtype_numbers() -> dict[torch.dtype, int]:
    """The engine's number for each dtype that this torch has."""
    return {
        getattr(torch, name): number for number, name in enumerate(_NAMES) if hasattr(torch, name)
    }


@cache
def _layouts() -> dict[tuple[object, ...], _Layout | None]:
    return {}


def _layout(shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> _Layout | None:
    known = _layouts()
    key = (shape, stride, dtype)
    try:
        return known[key]
    except KeyError:
        pass
    if len(known) >= _MOST:
        known.clear()
    known[key] = layout = _make_layout(shape, stride, dtype)
    return layout


def _make_layout(shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> _Layout | None:
    number = dtype_numbers().get(dtype)
    if number is None:
        return None
    dim, numel = len(shape), shape.numel()
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1
    memory = ctypes.create_string_buffer(_LAYOUT.size + 16 * dim)
    address = ctypes.addressof(memory)
    sizes = address + _LAYOUT.size
    head = _LAYOUT.pack(number, dim, numel, sizes, sizes + 8 * dim, -1)
    memory.raw = head + struct.pack(f"{2 * dim}q", *shape, *stride)
    return _Layout(address, numel, last * dtype.itemsize if numel else 0, dtype, memory)


def _has_memory(tensor: Tensor, layout: _Layout) -> bool:
    """`statistics.has_memory` for a strided tensor whose layout is known."""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    if not layout.numel:
        return True
    return statistics.has_bytes(tensor, layout.extent, layout.dtype.itemsize)
