"""A digest of a tensor's elements: equal for equal bits, whatever the strides and the device."""

from __future__ import annotations

import ctypes
import hashlib

import torch
from torch import Tensor

from .statistics import blocks, has_memory


def digest(tensor: Tensor) -> str:
    """SHA-256, in hexadecimal, of the elements' bytes in row-major order.

    The bytes are those of a contiguous copy on the host: bool is one byte, a complex number its
    real and then its imaginary part, and what is marked as conjugate or negative is that. A sparse
    tensor counts as the dense one that is saved of it. Empty where there are no elements to read:
    freed and meta tensors, quantized and nested ones, wrappers.

    One block at a time is brought to the host, which waits for the device. Not tuned for speed.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        if tensor.is_quantized or tensor.is_nested or not has_memory(tensor):
            return ""
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        sha256 = hashlib.sha256()
        for block in blocks(tensor):
            flat = block.resolve_conj().resolve_neg().contiguous().to("cpu")
            size = flat.numel() * flat.element_size()
            # NumPy, which could give a view of the bytes, is not everywhere that torch is.
            sha256.update((ctypes.c_char * size).from_address(flat.data_ptr()) if size else b"")
        return sha256.hexdigest()
