"""Makes buffers with guard bands, which replace those that a wrapper allocated."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor

ALIGNED = 512  # bytes: the alignment that torch's CUDA allocator gives; that of the CPU is less


@dataclass(eq=False, slots=True)
class Guarded:
    """Memory with guard bands: `guard` bytes, `nbytes` of a buffer at `address`, `guard` bytes."""

    owner: ref[Any]  # dies when the buffer is freed, and its memory with it
    address: int
    nbytes: int
    guard: int
    device: int  # -1 is the CPU
    dtype: torch.dtype


class _CudaMemory:
    """Memory on a GPU for `torch.as_tensor`, whose result keeps this object alive."""

    def __init__(self, memory: Tensor, address: int, nbytes: int) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def guarded(
    tensor: Tensor, guard: int, band: bytes | None, inside: bytes | None
) -> tuple[Tensor, Guarded]:
    """Allocate a tensor like ``tensor`` with guard bands of ``guard`` bytes before and behind it.

    It has the sizes, strides and dtype of ``tensor`` and begins at the start of its storage, on a
    multiple of 512 bytes if ``guard`` is one. The bands are filled with the pattern ``band`` and
    the buffer with ``inside``, 8 bytes each; None leaves the memory as it is.
    """
    nbytes = tensor.untyped_storage().nbytes()
    total = guard + -(-nbytes // 8) * 8 + guard
    memory = torch.empty(total + ALIGNED, dtype=torch.uint8, device=tensor.device)
    skipped = -memory.data_ptr() % ALIGNED
    memory = memory[skipped : skipped + total]
    address = memory.data_ptr() + guard
    if band is not None:
        fill(memory[:guard], band)
        fill(memory[guard + nbytes // 8 * 8 :], band)
    if inside is not None:
        fill(memory[guard : guard + nbytes], inside)
    owner: Any
    if tensor.is_cuda:
        owner = _CudaMemory(memory, address, nbytes)
        flat = torch.as_tensor(owner, device=tensor.device)
    else:
        owner = (ctypes.c_char * nbytes).from_address(address)
        owner.memory = memory
        flat = torch.frombuffer(owner, dtype=torch.uint8)
    result = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    result.set_(flat.untyped_storage(), 0, tensor.shape, tensor.stride())
    place = tensor.get_device() if tensor.is_cuda else -1
    return result, Guarded(ref(owner), address, nbytes, guard, place, tensor.dtype)


def fill(memory: Tensor, pattern: bytes) -> None:
    """Fill a contiguous tensor of uint8 with a pattern of 8 bytes.

    The pattern begins at the start of the memory. So if that is on a multiple of 8 bytes, each byte
    is that of the pattern at its address modulo 8.
    """
    whole = memory.numel() // 8 * 8
    if whole and not memory.data_ptr() % 8:
        words = torch.empty(0, dtype=torch.int64, device=memory.device)
        start = memory.storage_offset()
        if start % 8 == 0:
            words.set_(memory.untyped_storage(), start // 8, (whole // 8,), (1,))
            words.fill_(int.from_bytes(pattern, "little", signed=True))
            memory = memory[whole:]
    # Byte by byte and not by a copy from the host, which is illegal during CUDA graph capture.
    for place, byte in enumerate(pattern[: memory.numel()]):
        memory[place::8].fill_(byte)


def flat(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor as a tensor of uint8."""
    storage = tensor.untyped_storage()
    result = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return result.set_(storage, 0, (storage.nbytes(),), (1,))


def is_shared(tensor: Tensor) -> bool:
    """Whether another tensor has the same storage; true if this torch cannot tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None:
        return True
    return bool(count(tensor.untyped_storage()._cdata) > _own_uses())


@cache
def _own_uses() -> int:
    alone = torch.empty(1)
    return int(torch._C._storage_Use_Count(alone.untyped_storage()._cdata))
