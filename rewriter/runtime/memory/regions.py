"""Memory with guard bands that serves one buffer after the other.

Making bands is most of what a guarded buffer costs, and bands that were compared are as they were:
what a buffer of the same size leaves is taken again, and only the inside is filled.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from .bands import Bands, band

if TYPE_CHECKING:
    from collections.abc import Hashable

ALIGNED = 512  # bytes
MOST = 64 << 20  # bytes of memory that nobody has, of one wrapper


class Form(NamedTuple):
    """What a region is made for: `device` is -1 for the CPU, `edge` fills its bands."""

    device: int
    stream: int
    nbytes: int
    guard: int
    edge: bytes
    item: int


class Region:
    """Memory with bands: `guard` bytes, `nbytes` of a buffer at `address`, `guard` bytes.

    `places` are those of its bands for damage, `rows` its part of the table of bands. `lease` is
    gone when nobody has the buffer any more, and `watched` is the call that got it. What is `kept`
    was given back, and is nobody's yet.
    """

    __slots__ = (
        "address", "form", "kept", "lease", "memory", "places", "pool", "rows", "total", "watched",
    )  # fmt: skip

    def __init__(self, form: Form, where: torch.device, bands: Bands, pool: Regions) -> None:
        places = bands.take()
        if places is None:
            raise MemoryError("too many buffers at once")
        self.places: tuple[int, int] | None = places
        self.form, self.pool, self.kept = form, pool, False
        self.total = form.guard + -(-form.nbytes // 16) * 16 + form.guard
        # Allocators of CUDA give multiples of 512, but for those that cache nothing.
        size = self.total + ALIGNED
        self.memory: Tensor | None = torch.empty(size, dtype=torch.uint8, device=where)
        start = self.memory.data_ptr()
        start += -start % ALIGNED
        self.address = start + form.guard
        end = self.address + form.nbytes
        word = int.from_bytes(form.edge, "little")
        bands.fill(start, form.guard, word, form.stream)
        bands.fill(end, self.total - form.guard - form.nbytes, word, form.stream)
        size, item = form.guard, form.item
        self.rows = band(start, size, form.edge, places[0], before=True, item=item)
        self.rows += band(end, size, form.edge, places[1], before=False, item=item)
        self.lease: ref[Lease] | None = None
        self.watched: Any = None

    def lend(self, tensor: Tensor, where: torch.device) -> None:
        """Have a tensor that has just been made use this memory instead of its own."""
        storage: Any = torch._C._construct_storage_from_data_pointer(
            self.address, where, self.form.nbytes
        )
        storage.lease = lease = Lease(self)
        self.lease = ref(lease)
        shape, stride = tensor.shape, tensor.stride()
        tensor.set_(storage, 0, shape, stride)


class Lease:
    """Is there for as long as anybody has the buffer: torch keeps it with the storage."""

    __slots__ = ("__weakref__", "region")

    def __init__(self, region: Region) -> None:
        self.region = region

    def __del__(self) -> None:
        region = self.region
        pool = region.pool
        if not region.kept and (region.places is None or pool.bytes + region.total > MOST):
            region.memory = None
        pool.ended.append(region)  # in any thread, and at any time: it is looked at later


class Regions:
    """The regions of one wrapper that nobody has. `ended` are those that were given back since."""

    def __init__(self) -> None:
        self.ended: deque[Region] = deque()
        self.bytes = 0
        self._free: dict[Hashable, list[Region]] = {}

    def take(self, form: Form) -> Region | None:
        free = self._free.get(form)
        if not free:
            return None
        region = free.pop()
        self.bytes -= region.total
        return region

    def give(self, region: Region) -> bool:
        """False if there is no room for it."""
        if region.memory is None or region.places is None or self.bytes + region.total > MOST:
            region.memory = None
            return False
        self.bytes += region.total
        self._free.setdefault(region.form, []).append(region)
        return True

    def drop(self, region: Region) -> None:
        """What was damaged is not used again."""
        free = self._free.get(region.form, [])
        if region in free:
            free.remove(region)
            self.bytes -= region.total
        region.memory = None


@cache
def can_lend() -> bool:
    """Whether torch keeps what is attached to a storage for as long as anybody has that."""
    try:
        memory = torch.empty(64, dtype=torch.uint8)
        make: Any = torch._C._construct_storage_from_data_pointer
        storage = make(memory.data_ptr(), memory.device, 64)
        storage.lease = kept = _Kept()
        known = ref(kept)
        tensor = torch.empty(0).set_(storage, 0, (16,), (1,))
        del storage, kept
        view = tensor[1:]
        del tensor
        is_kept = known() is not None
        del view
        return is_kept and known() is None
    except Exception:
        return False


class _Kept:
    pass
