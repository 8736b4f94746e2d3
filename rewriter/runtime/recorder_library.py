"""Builds and loads the recorder: once per machine and torch, then from the cache.

C++ wrappers that Python loads find the loaded library by name, and those in Python call it by the
extension module (`extension.py`). For a program in C++ that loads an instrumented wrapper,

    REWRITER_RECORDER=$(python -m rewriter.runtime.recorder_library)

names its file. Packages and standalone wrappers have the recorder in them, and need no library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

from . import bundle
from .build import Unavailable, build_once, made_or_why

_ENTRY = "inductor_rewriter_recorder_1"  # in rewriter/runtime/cpp/find.h
_RECORD, _FINISH = "inductor_rewriter_record_into", "inductor_rewriter_finish"


@cache
def load() -> ctypes.CDLL | None:
    """As `find`; where it cannot be loaded, standard error says why, and C++ wrappers run
    without probes."""
    made = find()
    if isinstance(made, Unavailable):
        print(f"[rewriter] warning: no recorder for C++ wrappers: {made}", file=sys.stderr)
        return None
    return made


@cache
def find() -> ctypes.CDLL | Unavailable:
    """The loaded recorder, which is built if it is not in the cache; or why there is none. Done
    once per process."""
    return made_or_why(_load)


def _load() -> ctypes.CDLL:
    root, version = _torch()
    flags = (
        "-fopenmp",
        f"-isystem{root / 'include'}",
        # Loaded for all: only the functions that wrappers look for may be visible.
        f"-Wl,--version-script={bundle.SOURCES / 'recorder.map'}",
        f"-L{root / 'lib'}",
        f"-Wl,-rpath,{root / 'lib'}",
        *("-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-ldl"),
    )
    return build_once(f"recorder-{version}", bundle.recorder("default"), flags, _open)


def _torch() -> tuple[Path, str]:
    """The directory of the installed torch, which is not imported, and its version."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise Unavailable("torch is not installed")
    root = Path(found.origin).parent
    version = re.search(r"__version__ = '(.+)'", (root / "version.py").read_text("utf-8"))
    return root, "" if version is None else version[1]


def _open(library: Path, compiler: str) -> ctypes.CDLL:
    functions = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    if not hasattr(functions, _ENTRY):
        raise Unavailable(f"{library} has another interface")
    record, finish = getattr(functions, _RECORD), getattr(functions, _FINISH)
    record.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    finish.argtypes, finish.restype = (ctypes.c_void_p,), None
    functions.inductor_rewriter_gpu_compiler.restype = ctypes.c_char_p
    return functions


if __name__ == "__main__":
    loaded = load()
    if loaded is None:
        sys.exit(1)
    print(loaded._name)
