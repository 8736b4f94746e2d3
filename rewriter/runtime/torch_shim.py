"""Torch's C shim: it says of a tensor in a few nanoseconds what methods of Python say in fifty.

Its functions take a handle, the address of a pointer to the tensor's implementation, which Python
has as `_cdata`. So `cpp/engine/python_tensors.h` can ask them without torch's C++.
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
    """Those of its functions about a tensor; none where they do not take it like this."""
    try:
        import torch  # who only asks whether there is an extension module has none

        library = ctypes.CDLL(torch._C.__file__)
        if not _takes_implementations(library, torch.empty(3, 5)[1:]):
            return ()
        return tuple(address_of(getattr(library, f"aoti_torch_get_{x}")) for x in _FUNCTIONS)
    except Exception:
        return ()  # a version of torch that has it in another way


def address_of(function: Any) -> int:
    """Where a function of a library is."""
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
