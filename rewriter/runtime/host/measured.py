"""What is told of the tensors that a wrapper returns."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ..plain import has_memory

_BLOCK = 1 << 24  # elements that are read at once


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
        if tensor.is_quantized or tensor.is_nested or not has_memory(tensor):
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
