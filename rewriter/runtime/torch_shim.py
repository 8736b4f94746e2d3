"""Finds functions of torch's C shim, which answer in nanoseconds what Python methods do in fifty.

They take a handle: the address of a pointer to the tensor's implementation, and Python has that
pointer as `_cdata`. So `cpp/engine/python_tensors.h` can call them without torch's C++ headers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_FUNCTIONS = (
    *("data_ptr", "storage_size", "storage_offset", "dim", "sizes", "strides"),
    *("dtype", "device_type", "device_index"),
)


@cache
def addresses() -> tuple[int, ...]:
    """The addresses of the functions in `_FUNCTIONS`; empty if this torch's take other handles."""
    try:
        import torch  # not at the top: the extension module can be looked for without torch

        library = ctypes.CDLL(torch._C.__file__)
        if not _takes_implementations(library, torch.empty(3, 5)[1:]):
            return ()
        return tuple(address_of(getattr(library, f"aoti_torch_get_{x}")) for x in _FUNCTIONS)
    except Exception:
        return ()  # another version of torch


def address_of(function: Any) -> int:
    """The address of a function of a library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _takes_implementations(functions: ctypes.CDLL, tensor: Any) -> bool:
    handle, data = ctypes.c_void_p(tensor._cdata), ctypes.c_void_p()
    size = ctypes.POINTER(ctypes.c_int64)()
    return (
        not functions.aoti_torch_get_data_ptr(ctypes.byref(handle), ctypes.byref(data))
        and data.value == tensor.data_ptr()
        and not functions.aoti_torch_get_sizes(ctypes.byref(handle), ctypes.byref(size))
        and size[:2] == list(tensor.shape)
    )
