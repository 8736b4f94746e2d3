"""What is told of the tensors that a wrapper returns."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK = 1 << 24  # elements that are read at once


def count(tensor: Tensor) -> dict[str, int]:
    """How many elements are NaN and infinite; empty if they cannot be read."""
    if not _is_readable(tensor) or tensor.layout is not torch.strided:
        return {}
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return {"nan": 0, "inf": 0}
    nan = inf = 0
    for block in _blocks(tensor.detach()):
        values = block.to(torch.float32) if block.dtype.itemsize == 1 else block
        nan += int(values.isnan().sum())
        inf += int(values.isinf().sum())
    return {"nan": nan, "inf": inf}


def digest(tensor: Tensor) -> str:
    """SHA-256, in hexadecimal, of the elements' bytes in row-major order: equal for equal bits,
    whatever the strides and the device.

    The bytes are those of a contiguous copy on the host: a bool is one byte, a complex number its
    real and then its imaginary part; lazy conjugation and negation are applied. A sparse tensor is
    converted to a dense one. Returns an empty text if there are no elements to read: for freed,
    meta, quantized and nested tensors, and for wrapper subclasses.

    Copies one block at a time to the host, and waits for the device. Not tuned for speed.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        if not _is_readable(tensor):
            return ""
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        sha256 = hashlib.sha256()
        for block in _blocks(tensor):
            flat = block.resolve_conj().resolve_neg().contiguous().to("cpu")
            size = flat.numel() * flat.element_size()
            # torch does not require NumPy, which would give a view of the bytes.
            sha256.update((ctypes.c_char * size).from_address(flat.data_ptr()) if size else b"")
        return sha256.hexdigest()


def _is_readable(tensor: Tensor) -> bool:
    """Whether the elements are in memory; otherwise reading them would crash.

    Meta and fake tensors, and other wrapper subclasses, have no elements; the storage of a live
    tensor may have been freed (FSDP does so).
    """
    if tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        return False
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    if tensor.layout is not torch.strided or not tensor.numel():
        return True
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in dims)
    storage = tensor.untyped_storage()
    return storage.nbytes() >= (last + 1) * tensor.element_size() and storage.data_ptr() != 0


def _blocks(view: Tensor) -> Iterator[Tensor]:
    """Views of at most `_BLOCK` elements that hold each element of `view` once, in its order."""
    total = view.numel()
    if total <= _BLOCK:
        yield view
        return
    length = view.shape[0]
    step = max(1, _BLOCK * length // total)
    for start in range(0, length, step):
        if step == 1:
            yield from _blocks(view.select(0, start))
        else:
            yield view.narrow(0, start, min(step, length - start))
