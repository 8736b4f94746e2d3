"""Measures tensors: statistics and a fingerprint, from one pass over each."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import fingerprint, statistics
from .engine_library import EngineLibrary, EngineUnavailable, load
from .statistics import Statistics

MEASURED = struct.Struct("=4q2Q2d2Q")
"""`Measured` of `cpp/engine/measured.h`."""

_LAYOUT = struct.Struct("@iiqPPi")
_MOST = 4096  # layouts that are kept

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
"""Dtypes by number, as `cpp/dtype.h` has them."""


class Measurement(NamedTuple):
    """What is known of a tensor: None and empty where there are no elements to read.

    `fingerprint` is of the bytes of the elements in row-major order, whatever the strides and the
    device are: 32 hexadecimal digits. Packed and quantized dtypes have no statistics.
    """

    statistics: Statistics | None
    fingerprint: str


NOTHING = Measurement(None, "")


class _Layout(NamedTuple):
    """What the engine has to know of all tensors of a shape, a stride and a dtype."""

    address: int  # of `Layout` in the memory that `memory` keeps
    numel: int
    extent: int  # bytes from the first element to the end of the last
    dtype: torch.dtype
    memory: object


def measure(tensors: Sequence[Tensor]) -> list[Measurement]:
    """Measure each of ``tensors``. Of those on a GPU this waits for that device."""
    result = [NOTHING] * len(tensors)
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        library = load()
        places: list[int] = []
        layouts: list[_Layout] = []
        addresses: list[int] = []
        kept = []
        for place, tensor in enumerate(tensors):
            if isinstance(library, EngineUnavailable) or not tensor.is_cpu:
                result[place] = measure_by_operators(tensor)
                continue
            if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
                result[place] = measure_by_operators(tensor)
                continue
            if tensor.is_conj() or tensor.is_neg():
                tensor = tensor.resolve_conj().resolve_neg()
                kept.append(tensor)
            layout = _layout(tensor.shape, tensor.stride(), tensor.dtype)
            if layout is None or not _has_memory(tensor, layout):
                continue
            places.append(place)
            layouts.append(layout)
            addresses.append(tensor.data_ptr())
        if places:
            assert isinstance(library, EngineLibrary)
            count = len(places)
            room = ctypes.create_string_buffer(MEASURED.size * count)
            pointers = struct.pack(f"{count}P", *[layout.address for layout in layouts])
            data = struct.pack(f"{count}P", *addresses)
            threads = torch.get_num_threads()
            measured = library.functions.inductor_rewriter_measure(
                pointers, data, count, threads, room
            )
            rows = MEASURED.iter_unpack(room.raw)
            for place, layout, row, _ in zip(places, layouts, rows, range(measured), strict=False):
                result[place] = decode(row, layout.dtype, layout.numel)
    return result


def measure_by_operators(tensor: Tensor) -> Measurement:
    """The same by torch's operators, on any device that has float64."""
    record = statistics.measure(tensor)
    if tensor.is_quantized or tensor.is_nested or not statistics.has_memory(tensor):
        return NOTHING
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    pieces = (
        block.resolve_conj().resolve_neg().contiguous() for block in statistics.blocks(tensor)
    )
    total = fingerprint.total(pieces, tensor.device)
    (found,) = statistics.collect([record])
    return Measurement(found, fingerprint.text(total, tensor.numel() * tensor.element_size()))


def decode(row: tuple[Any, ...], dtype: torch.dtype, numel: int) -> Measurement:
    """The measurement of a tensor from its `Measured`, unpacked."""
    finite, nan, positive, negative, low, high, mean, deviation, first, second = row
    text = f"{first:016x}{second:016x}"
    if finite == -1:
        return Measurement(None, text)
    of = "magnitude" if dtype.is_complex else "value"
    if not finite:
        none = Statistics(numel, None, None, None, None, nan, positive, negative, of)
        return Measurement(none, text)
    lowest, highest = statistics.decode_extremes(dtype, low, high)
    spread = deviation if finite > 1 else None
    known = Statistics(numel, lowest, highest, mean, spread, nan, positive, negative, of)
    return Measurement(known, text)


@cache
def dtype_numbers() -> dict[torch.dtype, int]:
    """The number of each dtype that this torch has."""
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
    """`statistics.has_memory` of a strided tensor, of which the extent is known."""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    if not layout.numel:
        return True
    begin = tensor.storage_offset() * layout.dtype.itemsize
    return tensor.untyped_storage().nbytes() >= begin + layout.extent
