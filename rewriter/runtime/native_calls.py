"""Builds and loads the extension module `cpp/engine/python.cpp`: the fast paths in native code.

It is built once per machine and Python version, as the engine is. Where Python's headers are
missing, or Python has no global interpreter lock, the fast paths run in Python, slower.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

from . import cpp_sources, torch_shim
from .engine_library import EngineUnavailable, build_once, made_or_why

_NAME = "inductor_rewriter_calls"


@cache
def load() -> ModuleType | EngineUnavailable:
    """Load the module, after building it if it is not in the cache; or return why that failed.

    Done once per process.
    """
    return made_or_why(_load)


def module() -> ModuleType | None:
    """The extension module, or None if it cannot be built."""
    loaded = load()
    return None if isinstance(loaded, EngineUnavailable) else loaded


def _load() -> ModuleType:
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise EngineUnavailable("it is for CPython with a global lock")
    headers = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    if not any(os.path.isfile(f"{folder}/Python.h") for folder in headers):
        raise EngineUnavailable("no headers of Python: install python3-dev")
    flags = [f"-I{folder}" for folder in sorted(headers)]
    flags.append(f"-DINDUCTOR_REWRITER_PYTHON={sys.hexversion:#x}")
    return build_once("calls", cpp_sources.together(cpp_sources.CALLS), flags, _open)


def _open(library: Path, _: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(library))
    spec = importlib.util.spec_from_file_location(_NAME, library, loader=loader)
    assert spec is not None
    try:
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
        made.use_shim(torch_shim.addresses())
    except ImportError as error:
        raise EngineUnavailable(f"{library}: {error}") from error
    return made
