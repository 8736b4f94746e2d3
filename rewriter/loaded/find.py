"""Finds the wrappers of Inductor's that are loaded in this process, whoever loaded them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

# What the entry of a wrapper is called: `Runner.call` since torch 2.9, and that of a C++ wrapper.
_ENTRIES = frozenset({"call", "Runner.call", "_wrap_func.<locals>.g"})
# What the module of a wrapper has imported.
_SIGNS = ("AsyncCompile", "CppWrapperCodeCache", "extern_kernels")


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
    return (one for one in gc.get_objects() if type(one) is FunctionType and _is_entry(one))


def _is_entry(function: FunctionType) -> bool:
    if function.__qualname__ not in _ENTRIES:
        return False
    namespace = function.__globals__
    return bool(namespace.get("__file__")) and any(name in namespace for name in _SIGNS)
