"""Builds our libraries where they run: once per machine, then from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from .cache_directory import cache_directory

Library = TypeVar("Library")
# Hot functions raise their optimisation level in the source; the rest is to compile quickly.
_FLAGS = ("-std=c++17", "-O1", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden")
_PATIENCE = 600  # seconds that a compiler may take, on a machine that is busy


class Unavailable(Exception):  # noqa: N818 - it is no error: a part of the tool does without
    """A library cannot be built or loaded; the message says why, in a few words."""


def made_or_why(make: Callable[[], Library]) -> Library | Unavailable:
    """The result of `make`, or why it failed: `make` calls `build_once`."""
    try:
        return make()
    except Unavailable as problem:
        return problem
    except (OSError, subprocess.SubprocessError) as error:
        return Unavailable(f"{type(error).__name__}: {error}")


def compiler() -> str:
    """The path of the C++ compiler that Inductor would use; empty if there is none."""
    if named := os.environ.get("CXX"):
        return shutil.which(named) or ""
    return next(filter(None, map(shutil.which, ("g++", "clang++"))), "")


def build_once(
    stem: str, source: str, flags: Sequence[str], open_library: Callable[[Path, str], Library]
) -> Library:
    """Open a library with `open_library(path, compiler)`, after building it if it is not cached.

    `stem` begins the file's name. Raises `Unavailable`, `OSError` or
    `subprocess.SubprocessError` if it cannot be built or opened.
    """
    if sys.platform != "linux":
        raise Unavailable(f"it was not tried on {sys.platform}")
    path = compiler()
    if not path:
        raise Unavailable("no C++ compiler: install g++, or name one in CXX")
    name = f"{stem}-{_key(path, source, flags)}.so"
    directory = cache_directory("engine")
    if directory is not None and (directory / name).is_file():
        with contextlib.suppress(OSError, Unavailable):
            return open_library(directory / name, path)  # a damaged file is built again below
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return open_library(_build(path, source, flags, directory / name), path)
    # There is no cache; the library stays loaded when its file is removed.
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder:
        return open_library(_build(path, source, flags, Path(folder) / name), path)


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
        raise Unavailable(f"{compiler} failed: {lines[0][:200]}")
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
