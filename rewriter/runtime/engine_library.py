"""Builds and loads the measuring engine of `cpp/engine/`: once per machine, then from the cache.

Where it cannot be built, as without a compiler, torch's operators compute the same numbers, slower
(`statistics.py`, `fingerprint.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from . import cpp_sources
from .cache_directory import cache_directory

INTERFACE = 9
Library = TypeVar("Library")
# Hot functions raise their optimisation level in the source; the rest is to compile quickly.
_FLAGS = ("-std=c++17", "-O1", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden")
_PATIENCE = 600  # seconds that a compiler may take, on a machine that is busy


class EngineUnavailable(Exception):  # noqa: N818 - it is no error: torch's operators measure
    """The engine cannot be built or loaded; the message says why, in a few words."""


@dataclass(frozen=True)
class EngineLibrary:
    """The loaded library, its file, and the compiler that built it."""

    functions: ctypes.CDLL
    path: Path
    compiler: str


@cache
def load() -> EngineLibrary | EngineUnavailable:
    """Load the engine, after building it if it is not in the cache; or return why that failed.

    Done once per process.
    """
    return made_or_why(_load)


def made_or_why(make: Callable[[], Library]) -> Library | EngineUnavailable:
    """The result of `make`, or why it failed: `make` calls `build_once`."""
    try:
        return make()
    except EngineUnavailable as problem:
        return problem
    except (OSError, subprocess.SubprocessError) as error:
        return EngineUnavailable(f"{type(error).__name__}: {error}")


def compiler() -> str:
    """The path of the C++ compiler that Inductor would use; empty if there is none."""
    if named := os.environ.get("CXX"):
        return shutil.which(named) or ""
    return next(filter(None, map(shutil.which, ("g++", "clang++"))), "")


def declared(
    functions: ctypes.CDLL, name: str, result: object, *arguments: object
) -> Callable[..., Any]:
    """A function of the library with its result and argument types declared.

    `name` is without the prefix `inductor_rewriter_`.
    """
    function: Any = getattr(functions, f"inductor_rewriter_{name}")
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


def _load() -> EngineLibrary:
    return build_once("engine", cpp_sources.together(cpp_sources.LIBRARY), ("-ldl",), _open)


def build_once(
    stem: str, source: str, flags: Sequence[str], open_library: Callable[[Path, str], Library]
) -> Library:
    """Open a library with `open_library(path, compiler)`, after building it if it is not cached.

    `stem` begins the file's name. Raises `EngineUnavailable`, `OSError` or
    `subprocess.SubprocessError` if it cannot be built or opened.
    """
    if sys.platform != "linux":
        raise EngineUnavailable(f"it was not tried on {sys.platform}")
    path = compiler()
    if not path:
        raise EngineUnavailable("no C++ compiler: install g++, or name one in CXX")
    name = f"{stem}-{_key(path, source, flags)}.so"
    directory = cache_directory("engine")
    if directory is not None and (directory / name).is_file():
        with contextlib.suppress(OSError, EngineUnavailable):
            return open_library(directory / name, path)  # a damaged file is built again below
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return open_library(_build(path, source, flags, directory / name), path)
    # There is no cache; the library stays loaded when its file is removed.
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder:
        return open_library(_build(path, source, flags, Path(folder) / name), path)


def _open(library: Path, compiler: str) -> EngineLibrary:
    functions = ctypes.CDLL(str(library))
    interface = getattr(functions, "inductor_rewriter_interface", None)
    if interface is None or interface() != INTERFACE:
        raise EngineUnavailable(f"{library} has another interface")
    pointer, number, large = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64
    text = ctypes.c_char_p
    for name, result, arguments in (
        ("measure", number, (pointer, pointer, number, number, pointer)),
        ("gpu_start", text, (number, text, text, text)),
        ("gpu_about", text, (number,)),
        ("gpu_compiler", text, (text,)),
        ("gpu_issue", large, (number, pointer, pointer, number, pointer, number)),
        ("gpu_fetch", text, (number, large, number, pointer, pointer)),
        ("gpu_capture", ctypes.c_int64, (number, pointer, pointer, number, pointer)),
        ("damage", pointer, (number,)),
        ("compare", number, (number, pointer, number, large, pointer)),
        ("act_on_memory", number, (number, pointer, pointer)),
        ("gpu_captured", large, (number, ctypes.c_int64, pointer)),
    ):
        declared(functions, name, result, *arguments)
    return EngineLibrary(functions, library, compiler)


@cache
def kernel_source() -> bytes:
    """The source of the measuring kernel for a GPU, with its includes inserted."""
    return cpp_sources.together(cpp_sources.KERNEL).encode()


def _build(compiler: str, source: str, flags: Sequence[str], library: Path) -> Path:
    """Compile into a temporary file, then rename it to `library`.

    Processes that do so at the same time write the same bytes.
    """
    handle, made = tempfile.mkstemp(dir=library.parent, suffix=".so.part")
    os.close(handle)
    try:
        command = [compiler, *_FLAGS, "-x", "c++", "-", "-o", made, *flags]
        run = subprocess.run(
            command, input=source, capture_output=True, text=True, timeout=_PATIENCE
        )
        if run.returncode == 0:
            os.chmod(made, 0o755)
            os.replace(made, library)
            return library
        problem = run.stderr
        lines = [line for line in problem.splitlines() if "error" in line] or [problem]
        raise EngineUnavailable(f"{compiler} failed: {lines[0][:200]}")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)


def _key(compiler: str, source: str, flags: Sequence[str]) -> str:
    """A hash of all that a library depends on: sources, flags, compiler and processor."""
    about = os.stat(os.path.realpath(compiler))
    facts: Sequence[object] = (
        *_FLAGS,
        *flags,
        os.path.realpath(compiler),
        about.st_size,
        about.st_mtime_ns,
        platform.machine(),
        _processor(),
    )
    return hashlib.sha256(f"{facts!r}\n{source}".encode()).hexdigest()[:32]


def _processor() -> str:
    """What `-march=native` depends on: several machines may share a home directory."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(line for line in lines.splitlines() if line.startswith(wanted))
    return platform.processor()
