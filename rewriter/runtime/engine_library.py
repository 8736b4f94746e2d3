"""The measuring engine of `cpp/engine/` as a library: built once per machine, then found again.

Where it cannot be had, because there is no compiler, torch's operators measure (`statistics.py`,
`fingerprint.py`), slower, to the same numbers.
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

INTERFACE = 8
Library = TypeVar("Library")
# What is hot says so itself; the rest is compiled quickly.
_FLAGS = ("-std=c++17", "-O1", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden")
_PATIENCE = 120  # seconds for a compiler


class EngineUnavailable(Exception):  # noqa: N818 - it is no error: torch's operators measure
    """Why there is no library, in a few words."""


@dataclass(frozen=True)
class EngineLibrary:
    """The library as it was loaded, and what built it."""

    functions: ctypes.CDLL
    path: Path
    compiler: str


@cache
def load() -> EngineLibrary | EngineUnavailable:
    """The library, built if it is not kept; or why there is none. Once per process."""
    return made_or_why(_load)


def made_or_why(make: Callable[[], Library]) -> Library | EngineUnavailable:
    """What a function makes with `build_once`, or why it cannot."""
    try:
        return make()
    except EngineUnavailable as problem:
        return problem
    except (OSError, subprocess.SubprocessError) as error:
        return EngineUnavailable(f"{type(error).__name__}: {error}")


def compiler() -> str:
    """The C++ compiler that Inductor would take, empty if there is none."""
    if named := os.environ.get("CXX"):
        return shutil.which(named) or ""
    return next(filter(None, map(shutil.which, ("g++", "clang++"))), "")


def declared(
    functions: ctypes.CDLL, name: str, result: object, *arguments: object
) -> Callable[..., Any]:
    """A function of the library, by its name without the prefix, that knows its types."""
    function: Any = getattr(functions, f"inductor_rewriter_{name}")
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


def _load() -> EngineLibrary:
    return build_once("engine", cpp_sources.together(cpp_sources.LIBRARY), ("-ldl",), _open)


def build_once(
    stem: str, source: str, flags: Sequence[str], open_library: Callable[[Path, str], Library]
) -> Library:
    """What `open_library` makes of a library and its compiler: built if it is not kept.

    Raises `EngineUnavailable`, `OSError` or `subprocess.SubprocessError` where there can be none.
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
            return open_library(directory / name, path)  # else it is damaged, and built again
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return open_library(_build(path, source, flags, directory / name), path)
    # It stays loaded when its file is gone.
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
    """The text of the GPU's kernel, with what it includes before it."""
    return cpp_sources.together(cpp_sources.KERNEL).encode()


def _build(compiler: str, source: str, flags: Sequence[str], library: Path) -> Path:
    """Compile into a file beside it: others that do so at the same time write the same."""
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
    """What a library is known by: sources, compiler, flags, and the processor that it is for."""
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
    """What `-march=native` depends on: a home directory may be that of several machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(line for line in lines.splitlines() if line.startswith(wanted))
    return platform.processor()
