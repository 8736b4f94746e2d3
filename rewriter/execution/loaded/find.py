"""Finds Inductor's wrappers that are loaded in this process, whatever loaded them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

# Names of entries: `Runner.call` since torch 2.9, and that of a C++ wrapper.
_ENTRIES = frozenset({"call", "Runner.call", "_wrap_func.<locals>.g"})
# Names that the module of a wrapper imports, and where from.
_SIGNS = {
    "AsyncCompile": "torch._inductor.async_compile",
    "CppWrapperCodeCache": "torch._inductor.codecache",
    "extern_kernels": "torch._inductor.select_algorithm",
}


def loaded_entries() -> list[FunctionType]:
    """The entry of each loaded wrapper, once.

    Two sources are needed. Inductor's list lacks wrappers that `torch.compiler.reset()` dropped and
    the program still uses. The garbage collector's list lacks frozen objects (`gc.freeze`).
    """
    entries = {id(entry): entry for entry in (*_listed(), *_alive())}
    return list(entries.values())


def entry_of(namespace: dict[str, Any]) -> FunctionType | None:
    """The entry among the names of a module; `None` if the module is not a wrapper."""
    call = namespace.get("call")
    function = call.__func__ if isinstance(call, MethodType) else call
    return function if isinstance(function, FunctionType) and _is_entry(function) else None


def _listed() -> Iterator[FunctionType]:
    """The entries in Inductor's list (`PyCodeCache` in torch/_inductor/codecache.py)."""
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache is None:
        return
    for module in list(codecache.PyCodeCache.modules):
        if (entry := entry_of(vars(module))) is not None:
            yield entry


def _alive() -> Iterator[FunctionType]:
    """The entries among the names of modules that imported what wrappers import.

    Does not use a list of all objects. While that exists, a thread of the program that builds a
    tuple would fail, because Python 3.13 and before finds a second reference to the tuple that it
    has to resize.
    """
    imported = [getattr(sys.modules.get(module), name, None) for name, module in _SIGNS.items()]
    for referrer in gc.get_referrers(*(sign for sign in imported if sign is not None)):
        if type(referrer) is dict and (entry := entry_of(referrer)) is not None:
            yield entry


def _is_entry(function: FunctionType) -> bool:
    if function.__qualname__ not in _ENTRIES:
        return False
    namespace = function.__globals__
    return bool(namespace.get("__file__")) and any(name in namespace for name in _SIGNS)
