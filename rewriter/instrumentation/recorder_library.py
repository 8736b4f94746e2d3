"""Builds and loads the recorder that C++ wrappers call: once per machine and torch, then from the
cache.

Wrappers that Python loads find the loaded library by name. For a program in C++ that loads an
instrumented wrapper,

    REWRITER_RECORDER=$(python -m rewriter.instrumentation.recorder_library)

names its file. Packages and standalone wrappers have the recorder in them, and need no library.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from rewriter.instrumentation import bundle
from rewriter.runtime.engine_library import EngineUnavailable, build_once, made_or_why

_ENTRY = "inductor_rewriter_recorder_1"  # in rewriter/runtime/cpp/find.h
_RECORD, _FINISH = "inductor_rewriter_record_into", "inductor_rewriter_finish"


@cache
def load() -> ctypes.CDLL | None:
    """Load the recorder, after building it if it is not in the cache. Done once per process.

    Where it cannot be built, standard error says why, and C++ wrappers run without probes.
    """
    made = made_or_why(_load)
    if isinstance(made, EngineUnavailable):
        print(f"[rewriter] warning: no recorder for C++ wrappers: {made}", file=sys.stderr)
        return None
    return made


def _load() -> ctypes.CDLL:
    import torch

    root = Path(torch.__file__).parent
    flags = (
        "-fopenmp",
        f"-isystem{root / 'include'}",
        # Loaded for all: only the functions that wrappers look for may be visible.
        f"-Wl,--version-script={bundle.SOURCES / 'recorder.map'}",
        f"-L{root / 'lib'}",
        f"-Wl,-rpath,{root / 'lib'}",
        *("-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-ldl"),
    )
    return build_once(f"recorder-{torch.__version__}", bundle.recorder("default"), flags, _open)


def _open(library: Path, compiler: str) -> ctypes.CDLL:
    functions = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    if not hasattr(functions, _ENTRY):
        raise EngineUnavailable(f"{library} has another interface")
    record, finish = getattr(functions, _RECORD), getattr(functions, _FINISH)
    record.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    finish.argtypes, finish.restype = (ctypes.c_void_p,), None
    return functions


if __name__ == "__main__":
    loaded = load()
    if loaded is None:
        sys.exit(1)
    print(loaded._name)
