"""Regions: memory with guard bands that is used for one buffer after the other.

`cpp/engine/python_memory.h` manages them, and takes the memory lines of a wrapper in native code.
Buffers that it cannot guard are left to `watch.py`, and so is everything where it cannot be built.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor

from .. import native_calls, torch_shim
from ..engine_library import EngineLibrary, load
from .bands import Bands

if TYPE_CHECKING:
    from ..running_call import RunningCall


def make_lines(
    calls: Mapping[int, RunningCall],
    guard: int,
    waiting: tuple[tuple[int, ...], tuple[int, ...]],
    of_memory: tuple[Callable[..., Any], ...],
    otherwise: tuple[Callable[..., Any], ...],
) -> Any | None:
    """Make an object with native methods `allocated`, `released`, `reused` and `checked`.

    It serves one wrapper, with bands of `guard` bytes. `calls` maps threads to the calls that run
    in them. `waiting` are the memory events and the launches whose lines leave their work to the
    next line. `of_memory` are `Memory._open`, `Memory._find_ways`, `make_memory` and a function
    that reports damage. `otherwise` are the slow paths for allocations, buffers that are given up,
    and launches. Returns None if the extension module or the engine cannot be built, or this torch
    lacks what regions need (`can_lend`).
    """
    module, library = native_calls.module(), load()
    if module is None or not isinstance(library, EngineLibrary) or not can_lend():
        return None
    functions = library.functions
    of_engine = (
        functions.inductor_rewriter_compare,
        functions.inductor_rewriter_act_on_memory,
        functions.inductor_rewriter_is_waiting,
        functions.inductor_rewriter_settle,
    )
    core: Any = torch._C
    stream = getattr(core, "_cuda_getCurrentRawStream", None)
    lines = module.Lines(
        calls,
        (
            *(Tensor, core._construct_storage_from_data_pointer, core._storage_Use_Count),
            *(core._len_torch_dispatch_stack, torch.is_inference_mode_enabled),
            *(stream, _is_of_graphs),
            *of_memory,
            *otherwise,
        ),
        tuple(map(torch_shim.address_of, of_engine)),
        guard,
        *waiting,
    )
    alone = torch.empty(1)
    lines.count(0, alone)
    return lines


def _is_of_graphs() -> bool:
    """Whether memory that is allocated now is that of CUDA graphs."""
    is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    return is_capturing is not None and (is_capturing() or is_in_graph_tree())


def is_in_graph_tree() -> bool:
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


def make_memory(
    bands: Bands, where: torch.device, nbytes: int
) -> tuple[Tensor, int, int, int] | None:
    """Allocate a region. Returns its memory, its address, and its two records of damage.

    Returns None if memory or records are used up.
    """
    places = bands.take()
    if places is None:
        return None
    try:
        memory = torch.empty(nbytes, dtype=torch.uint8, device=where)
    except RuntimeError:
        for place in places:
            bands.give(place)
        return None
    return memory, memory.data_ptr(), *places


@cache
def can_lend() -> bool:
    """Whether this torch has what regions need.

    An attribute of a storage must stay alive exactly as long as a tensor uses the storage, and the
    functions for use counts and of the C shim must exist.
    """
    try:
        memory = torch.empty(64, dtype=torch.uint8)
        make: Any = torch._C._construct_storage_from_data_pointer
        storage = make(memory.data_ptr(), memory.device, 64)
        storage.lease = kept = _Kept()
        known = ref(kept)
        tensor: Any = torch.empty(0).set_(storage, 0, (16,), (1,))
        del storage, kept
        alone = tensor._use_count() == 1 and hasattr(torch._C, "_storage_Use_Count")
        view = tensor[1:]
        del tensor
        is_kept = known() is not None
        del view
        return alone and is_kept and known() is None and bool(torch_shim.addresses())
    except Exception:
        return False


class _Kept:
    pass
