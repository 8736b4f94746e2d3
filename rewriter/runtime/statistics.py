"""Statistics of the tensors seen at a kernel launch.

:func:`measure` queues the reductions of one tensor on that tensor's own device and returns
without waiting for them (it may run while a CUDA graph is being captured); :func:`collect` later
brings the results of any number of tensors to the host with one transfer per device.

Neither depends on, nor changes, the state of the model around it: tensors are only read, and the
ops used here are deterministic, draw no random numbers and name their dtype and device.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1 << 20
"""Most elements converted to float64 at a time; it bounds the temporaries to a few times 8 MiB."""

WIDTH = 9
"""Numbers in the ``values`` of a Record."""

_INF = math.inf
_INT64_MIN = -(1 << 63)


# _EXACT: dtypes whose values float64 represents exactly. _WIDE: it does not, so these are reduced
# as int64 keys of the same order.
_EXACT = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32}
_WIDE = {torch.int64, torch.uint64}
_FLOAT8 = {torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz}
_FLOAT8.add(getattr(torch, "float8_e8m0fnu", torch.float8_e5m2))  # since torch 2.7
_COMPLEX = {torch.complex32, torch.complex64, torch.complex128}
_HUGE = {torch.float64, torch.complex128}  # squares and sums can leave the range of float64
_MEASURED = _EXACT | _WIDE | _FLOAT8 | _COMPLEX | _HUGE
_MEASURED |= {torch.float16, torch.bfloat16, torch.float32}
# Half of the largest finite number of a type of 16 or 8 bits.
_HALVES = {x: torch.finfo(x).max / 2 for x in (torch.float16, torch.bfloat16, *_FLOAT8)}


@dataclass(frozen=True)
class Statistics:
    """Statistics of one tensor; an element that an expanded dimension repeats counts each time.

    ``minimum``, ``maximum``, ``mean`` and ``std`` are over the finite elements, and None if there
    are none; ``std`` is the sample standard deviation (divisor n - 1, as ``torch.std``), None for
    fewer than two. The extremes are exact: an int for integer dtypes, 0 or 1 for bool, else a
    float. ``mean`` and ``std`` are accurate to float64 for every dtype.

    ``of`` says what was measured: "value", or for complex dtypes "magnitude", abs(x). A complex
    element counts as NaN if either part is, else as infinite if either part is (or if its magnitude
    exceeds float64).

    ``near_limit`` counts, for floating-point types of 16 and 8 bits, the finite elements whose
    magnitude is more than half of the largest finite one: doubled, they overflow. The lowest number
    of a 16-bit type is not counted, since masks are filled with it.
    """

    numel: int
    minimum: int | float | None
    maximum: int | float | None
    mean: float | None
    std: float | None
    nan: int
    positive_inf: int
    negative_inf: int
    of: str = "value"
    near_limit: int = 0

    @property
    def inf(self) -> int:
        """The number of infinite elements of both signs."""
        return self.positive_inf + self.negative_inf


@dataclass(frozen=True)
class Record:
    """The statistics of one tensor, still on its device and perhaps not computed yet.

    ``values`` has shape (9,) and dtype int64: the numbers of finite, NaN, positive and negative
    infinite elements, then minimum, maximum, mean and population standard deviation, meaningless
    without a finite element, and the number of those near the limit. The mean is relative to
    ``_centre`` of the extremes, so that a large offset costs no precision. Extremes and moments are
    the bits of float64, except the extremes of int64 and uint64: those are int64 keys, the value
    itself, or for uint64 the value - 2**63.

    ``numel`` is that of the tensor; ``values`` counts each element that an expanded dimension
    repeats once instead of ``repeat`` times.
    """

    values: Tensor
    dtype: torch.dtype
    numel: int
    repeat: int = 1


def measure(tensor: Tensor) -> Record | None:
    """Queue the reductions of ``tensor`` on its device, without waiting for that device.

    None for a tensor without plain elements to read: packed sub-byte and quantized dtypes, sparse
    and nested layouts, meta and fake tensors and other wrappers, freed storage, devices without
    float64.
    """
    # Ignore overrides of torch functions by the program, such as those of a default device.
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        if tensor.is_nested or not _readable(tensor):
            return None
        view, repeat = _distinct(tensor)
        if view.numel() == 0:
            values = torch.zeros(WIDTH, dtype=torch.int64, device=tensor.device)
        else:
            rows = [_reduce(block) for block in blocks(view)]
            values = rows[0] if len(rows) == 1 else _merge(torch.stack(rows), tensor.dtype)
        return Record(values, tensor.dtype, tensor.numel(), repeat)


def collect(records: Sequence[Record | None]) -> list[Statistics | None]:
    """Wait for ``records`` and decode them, in order, with one transfer per device."""
    devices: dict[torch.device, list[tuple[int, Record]]] = {}
    for position, record in enumerate(records):
        if record is not None:
            devices.setdefault(record.values.device, []).append((position, record))
    result: list[Statistics | None] = [None] * len(records)
    with torch._C.DisableTorchFunction(), torch.no_grad():
        for there in devices.values():
            rows = torch.stack([record.values for _, record in there]).tolist()
            for (position, record), row in zip(there, rows, strict=True):
                result[position] = _decode(record, row)
    return result


def _readable(tensor: Tensor) -> bool:
    """Whether plain ops on the tensor's device can read its elements and reduce them."""
    return (
        tensor.dtype in _MEASURED
        and tensor.layout is torch.strided
        and tensor.device.type != "mps"
        and has_memory(tensor)
    )


def has_memory(tensor: Tensor) -> bool:
    """Whether the elements of ``tensor`` are in memory; otherwise reading them would crash.

    Meta and fake tensors, and other wrapper subclasses, have no elements; the storage of a live
    tensor may have been freed (FSDP does so).
    """
    if (
        tensor.device.type == "meta"
        or type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        return False
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.numel() == 0:
        return True
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    item = tensor.element_size()
    return has_bytes(tensor, (sum((size - 1) * stride for size, stride in dims) + 1) * item, item)


def has_bytes(tensor: Tensor, end: int, item: int) -> bool:
    """Whether the storage of a tensor holds all of its elements.

    ``end`` is the number of bytes from the first element to the end of the last, ``item`` that of
    an element. A freed storage has 0 bytes; the storage of a tensor that only stands for zeros has
    a size but no memory.
    """
    storage = tensor.untyped_storage()
    has_all = storage.nbytes() >= tensor.storage_offset() * item + end
    return has_all and not (end and storage.data_ptr() == 0)


def _distinct(tensor: Tensor) -> tuple[Tensor, int]:
    """A view of ``tensor`` without its expanded dimensions, and how often they repeat it.

    Statistics do not depend on order, so the dimensions of the view are in memory order and as
    few as possible: a dense tensor becomes one run of memory, whatever the order of its own.
    """
    if tensor.is_conj():
        tensor = tensor.conj()  # clears the bit without a copy; the magnitude is the same
    if tensor.is_contiguous():
        return tensor.view(-1), 1
    repeat = 1
    merged: list[tuple[int, int]] = []  # (size, stride)
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    for size, stride in sorted(dims, key=lambda dim: dim[1], reverse=True):
        if size == 1:
            continue
        if stride == 0:
            repeat *= size
        elif merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    sizes, strides = [size for size, _ in merged], [stride for _, stride in merged]
    return tensor.as_strided(sizes, strides, tensor.storage_offset()), repeat


def blocks(view: Tensor) -> Iterator[Tensor]:
    """Views of at most BLOCK elements that hold each element of ``view`` once, in its order."""
    total = view.numel()
    if total <= BLOCK:
        yield view
        return
    length = view.shape[0]
    step = max(1, BLOCK * length // total)
    step = -(-length // -(-length // step))  # as many pieces, but of nearly equal size
    for start in range(0, length, step):
        if step == 1:
            yield from blocks(view.select(0, start))
        else:
            yield view.narrow(0, start, min(step, length - start))


def _reduce(block: Tensor) -> Tensor:
    """The ``values`` of a Record for a non-empty ``block`` of at most BLOCK elements."""
    values = _comparable(block)
    finite = block.dtype in _EXACT or block.dtype in _WIDE
    nan = positive = negative = torch.zeros((), dtype=torch.int64, device=block.device)
    if finite or block.device.type == "cpu":
        low, high = torch.aminmax(values)  # both are NaN if a value is
        # On the CPU there is no device to wait for, and finite values need fewer passes.
        finite = finite or all(map(math.isfinite, torch.stack([low, high]).tolist()))
    if not finite:
        nan = values.isnan().sum()
        positive, negative = values.isposinf().sum(), values.isneginf().sum()
        low = torch.nan_to_num(values, _INF, _INF, _INF).amin()
        high = torch.nan_to_num(values, -_INF, -_INF, -_INF).amax()
    finite_ones = values.numel() - nan - positive - negative
    counts = torch.stack([finite_ones, nan, positive, negative])
    if block.dtype in _HUGE:
        scale = _scale(low, high)
        offsets = values * scale - _centre(low * scale, high * scale)
        moments = _moments(offsets, counts[0], finite) / scale
    else:
        offsets = (values - _centre(low, high)).to(torch.float64)
        moments = _moments(offsets, counts[0], finite)
    return _row(counts, low, high, moments, _near_limit(values, block.dtype))


def _near_limit(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The number of elements that are near the limit of their dtype (`Statistics.near_limit`)."""
    half = _HALVES.get(dtype)
    if half is None:
        return torch.zeros((), dtype=torch.int64, device=values.device)
    above = (values > half) & (values <= 2 * half)
    below = (values < -half) & (values >= -2 * half)
    return above.sum() + (below & (values != -2 * half) if dtype.itemsize == 2 else below).sum()


def _comparable(block: Tensor) -> Tensor:
    """The elements of a block in a form to reduce: contiguous int64 keys or float64.

    May be ``block`` itself.
    """
    if block.dtype in _COMPLEX:
        real, imag = torch.view_as_real(block).to(torch.float64).unbind(-1)
        # hypot alone returns inf for an infinite and a NaN part.
        return torch.hypot(real, imag).masked_fill_(real.isnan() | imag.isnan(), math.nan)
    block = block.resolve_neg().contiguous()
    if block.dtype in _WIDE:
        keys = block.view(torch.int64)
        return keys ^ _INT64_MIN if block.dtype == torch.uint64 else keys
    return (block.to(torch.float32) if block.dtype in _FLOAT8 else block).to(torch.float64)


def _merge(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Combine the ``values`` of several blocks, shape (blocks, 9), into one."""
    counts = rows[:, :4].sum(0)
    extremes = rows[:, 4:6] if dtype in _WIDE else rows[:, 4:6].view(torch.float64)
    low, high = extremes[:, 0].amin(), extremes[:, 1].amax()
    scale = _scale(low, high) if dtype in _HUGE else 1
    means, deviations = (rows[:, 6:8].view(torch.float64) * scale).unbind(1)
    centres = _centre(extremes[:, 0] * scale, extremes[:, 1] * scale)
    shifts = (centres - _centre(low * scale, high * scale)).to(torch.float64)
    # A block without finite values has no centre; its weight is 0.
    means = means + torch.nan_to_num(shifts, 0.0, 0.0, 0.0)
    moments = _moments(means, counts[0], parts=(rows[:, 0], deviations)) / scale
    return _row(counts, low, high, moments, rows[:, 8].sum())


def _moments(
    offsets: Tensor,
    number: Tensor,
    finite: bool = True,
    parts: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Mean and population standard deviation, shape (2,), of the ``number`` finite ``offsets``.

    Of several blocks the offsets are the means, and ``parts`` the numbers of elements and the
    standard deviations (Chan's formula, for all blocks at once). Overwrites ``offsets``.

    Offsets are from the centre of all values: what is rounded here is small next to the range of
    the values, and so next to their deviation, however far from zero they are.
    """
    number = number.to(torch.float64).clamp(min=1)
    known = offsets if finite else torch.nan_to_num(offsets, 0.0, 0.0, 0.0)
    mean = (known if parts is None else known * parts[0]).sum() / number
    squares = offsets.sub_(mean)
    if not finite:
        squares.nan_to_num_(0.0, 0.0, 0.0)
    squares.square_()
    if parts is not None:
        squares.add_(parts[1].square()).mul_(parts[0])
    return torch.stack([mean, (squares.sum() / number).sqrt()])


def _centre(low: Tensor, high: Tensor) -> Tensor:
    """The middle of [low, high], without overflow; equal to both if they are equal.

    The middle of int64 is rounded up, because int64 reaches one further down: then no value of
    [low, high] differs from it by more than int64 holds.
    """
    if low.is_floating_point():
        return low + (high / 2 - low / 2)
    return (low | high) - ((low ^ high) >> 1)


def _scale(low: Tensor, high: Tensor) -> Tensor:
    """A power of two, exact, that brings the larger of ``low`` and ``high`` to the order of one."""
    exponent = torch.maximum(low.abs(), high.abs()).view(torch.int64) >> 52
    return ((2046 - exponent).clamp(min=1) << 52).view(torch.float64)


def _row(counts: Tensor, low: Tensor, high: Tensor, moments: Tensor, near: Tensor) -> Tensor:
    """Put together the ``values`` of a Record."""
    extremes = torch.stack([low, high])
    moments = moments.view(torch.int64)
    return torch.cat([counts, extremes.view(torch.int64), moments, near.unsqueeze(0)])


def _decode(record: Record, row: list[int]) -> Statistics:
    """The statistics in ``row``, the ``values`` of ``record`` on the host."""
    count, nan, positive, negative = (number * record.repeat for number in row[:4])
    of = "magnitude" if record.dtype in _COMPLEX else "value"
    if count == 0:
        return Statistics(record.numel, None, None, None, None, nan, positive, negative, of)
    low: int | float
    high: int | float
    low, high, offset, deviation = struct.unpack("4d", struct.pack("4q", *row[4:8]))
    if record.dtype in _WIDE:
        lift = 0 if record.dtype == torch.int64 else -_INT64_MIN
        low, high = row[4] + lift, row[5] + lift
        centre = float((low + high + 1) // 2)
    else:
        centre = low + (high / 2 - low / 2)
        if record.dtype in _EXACT:
            low, high = int(low), int(high)
    mean = min(max(centre + offset, float(low)), float(high))  # rounding may have led outside
    # The deviation of values further apart than float64 reaches may itself be infinite.
    std = deviation * math.sqrt(count / (count - 1)) if count > 1 else None
    near = row[8] * record.repeat
    return Statistics(record.numel, low, high, mean, std, nan, positive, negative, of, near)


def decode_extremes(dtype: torch.dtype, low: int, high: int) -> tuple[int | float, int | float]:
    """Decode the extremes that the engine gives as 64 bits each: float64, or a 64-bit integer."""
    if dtype in _WIDE:
        lift = 1 << 64 if dtype == torch.int64 else 0
        return (low - lift if low >> 63 else low), (high - lift if high >> 63 else high)
    numbers = struct.unpack("2d", struct.pack("2Q", low, high))
    return (int(numbers[0]), int(numbers[1])) if dtype in _EXACT else numbers
