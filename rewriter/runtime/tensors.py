"""What the extension module asks of tensors that torch's C shim does not tell."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .build import Unavailable


def address(tensor: Tensor) -> int:
    """That of a tensor's TensorImpl, without what a subclass does at each access."""
    with torch._C.DisableTorchFunction():
        return tensor._cdata


def take(handle: Any) -> Tensor:
    """The tensor of a handle, a capsule, which is freed. `alloc_tensor_by_stealing_from_void_ptr`
    would leave it."""
    (tensor,) = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([handle])
    return tensor


def positive(tensor: Tensor) -> Tensor:
    """A copy of a negative view with the numbers that it has; any other tensor itself."""
    if not tensor.is_neg():
        return tensor
    with torch.no_grad():
        if 0 in tensor.stride():
            return tensor.resolve_neg()
        made = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        return made.copy_(tensor)


def save(tensor: Tensor, path: str) -> str:
    """Save a tensor that only torch can save, such as a sparse one. Returns what went wrong."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with torch.no_grad():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            torch.save(tensor.detach(), temporary)
            os.replace(temporary, path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def cannot_guard(tensor: Tensor) -> str:
    """Why a buffer cannot be replaced or filled; empty if it can, or if the recorder sees why."""
    if tensor.is_cpu and tensor.is_pinned():
        return "its memory is pinned"
    return "in the memory of CUDA graph trees" if _is_in_graph_tree() else ""


def is_shared(tensor: Tensor) -> str:
    """Says so if another tensor has the memory of a tensor, or if this torch cannot tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    is_alone = count is not None and count(tensor.untyped_storage()._cdata) <= _own_uses()
    return "" if is_alone else "another tensor has its memory"


@cache
def _own_uses() -> int:
    alone = torch.empty(1)
    return int(torch._C._storage_Use_Count(alone.untyped_storage()._cdata))


def _is_in_graph_tree() -> bool:
    """Whether Inductor's CUDA graph trees run or capture a function (`mode="reduce-overhead"`).

    They require what it returns to be a block of their pool; a buffer within bands is not one.
    """
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        manager = trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    except (AssertionError, AttributeError, RuntimeError):  # a thread that has none
        return False
    if manager is None:
        return False
    is_capturing: bool = torch._C._cuda_isCurrentStreamCapturing()
    # It also says so after the function returned, and its results are known.
    is_warm = bool(getattr(manager.current_node, "outputs_weakrefs", ()))
    return is_capturing or (bool(getattr(manager, "in_warmup", False)) and not is_warm)


def fingerprint(tensor: Tensor) -> str:
    """The fingerprint of a tensor's elements, as the probe `hash` shows it; empty if they cannot
    be read, or if the recorder cannot be loaded."""
    from . import recorder_library

    recorder = recorder_library.find()
    if isinstance(recorder, Unavailable):
        return ""
    text = ctypes.create_string_buffer(64)
    tensor = positive(tensor)
    handle = ctypes.c_void_p(tensor._cdata)
    found = recorder.inductor_rewriter_fingerprint(ctypes.byref(handle), text)
    return text.value.decode() if found else ""
