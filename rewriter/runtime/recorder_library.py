"""Loads the recorder, as it came with the package or was built on this machine.

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
from .build import Unavailable, made_or_why, open_or_build

_ENTRY = "inductor_rewriter_recorder_1"  # in rewriter/runtime/cpp/find.h
TORCH = "libtorch_cpu.so"
# Loaded for all: only the functions that wrappers look for may be visible.
LINKED = (f"-Wl,--version-script={bundle.SOURCES / 'recorder.map'}", "-ldl", "-lpthread")


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
    """The loaded recorder, built before if it has to be; or why there is none. Once per
    process."""
    return made_or_why(_load)


def _load() -> ctypes.CDLL:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise Unavailable("torch is not installed")
    # Loaded before the recorder, which takes torch's functions from it.
    ctypes.CDLL(str(Path(found.origin).parent / "lib" / TORCH))
    return open_or_build("recorder", bundle.recorder, LINKED, _open, stands_for())


def stands_for() -> dict[str, list[str]]:
    """The functions of torch that the recorder calls, by the library that has them."""
    return {TORCH: re.findall(r"\b(aoti_torch_\w+)\(", bundle.SHIM.read_text("utf-8"))}


def _open(library: Path) -> ctypes.CDLL:
    functions = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    if not hasattr(functions, _ENTRY):
        raise Unavailable(f"{library} has another interface")
    record, finish = functions.inductor_rewriter_record_into, functions.inductor_rewriter_finish
    record.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    finish.argtypes, finish.restype = (ctypes.c_void_p,), None
    functions.inductor_rewriter_gpu_compiler.restype = ctypes.c_char_p
    return functions


if __name__ == "__main__":
    loaded = load()
    if loaded is None:
        sys.exit(1)
    print(loaded._name)
