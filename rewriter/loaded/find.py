"""Finds the wrappers of Inductor's that are loaded in this process, whoever loaded them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

# What the entry of a wrapper is called: `Runner.call` since torch 2.9, and that of a C++ wrapper.
_ENTRIES = frozenset({"call", "Runner.call", "_wrap_func.<locals>.g"})
# What the module of a wrapper has imported, and from where.
_SIGNS = {
    "AsyncCompile": "torch._inductor.async_compile",
    "CppWrapperCodeCache": "torch._inductor.codecache",
    "extern_kernels": "torch._inductor.select_algorithm",
}


def loaded_entries() -> list[FunctionType]:
    """The entry of each wrapper that is loaded, once.

    Inductor's own list lacks what was dropped by `torch.compiler.reset()` while a program still
    holds it, and the collector's what it was told to leave alone (`gc.freeze`).
    """
    entries = {id(entry): entry for entry in (*_listed(), *_alive())}
    return list(entries.values())


def entry_of(namespace: dict[str, Any]) -> FunctionType | None:
    """The entry in the names of a module; `None` where that is no wrapper."""
    call = namespace.get("call")
    function = call.__func__ if isinstance(call, MethodType) else call
    return function if isinstance(function, FunctionType) and _is_entry(function) else None


def _listed() -> Iterator[FunctionType]:
    """Those in the list of Inductor's (`PyCodeCache` in torch/_inductor/codecache.py)."""
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache is None:
        return
    for module in list(codecache.PyCodeCache.modules):
        if (entry := entry_of(vars(module))) is not None:
            yield entry


def _alive() -> Iterator[FunctionType]:
    """Those in the names of a module that imported what wrappers import.

    Not by a list of all objects: as long as it is there, a thread of the program that is making a
    tuple fails, because Python 3.13 and before finds another reference to what it has to resize.
    """
    imported = [getattr(sys.modules.get(module), name, None) for name, module in _SIGNS.items()]
    for one in gc.get_referrers(*(sign for sign in imported if sign is not None)):
        if type(one) is dict and (entry := entry_of(one)) is not None:
            yield entry


def _is_entry(function: FunctionType) -> bool:
    if function.__qualname__ not in _ENTRIES:
        return False
    namespace = function.__globals__
    return bool(namespace.get("__file__")) and any(name in namespace for name in _SIGNS)
