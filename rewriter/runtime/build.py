"""Our libraries: as they came with the installed package, or built where they run, once per
machine, and then from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from .cache_directory import cache_directory

Library = TypeVar("Library")
# Loops over elements raise the optimization level in the source. With -O2 it takes a third longer
# to compile, and is no faster.
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
_PATIENCE = 600  # seconds that a compiler may take, on a machine that is busy
# What a wheel has of it, made by hatch_build.py.
BUILT = Path(__file__).resolve().parent / "built"
# For which processors, best first: the end of the name of a file, what it is compiled for, and
# what the processor must have, as /proc/cpuinfo names it.
VARIANTS: Mapping[str, Sequence[tuple[str, str, frozenset[str]]]] = {
    "x86_64": (
        ("-avx2", "haswell", frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe".split())),  # noqa: SIM905
        ("", "x86-64", frozenset()),
    ),
    "aarch64": (("", "armv8-a", frozenset()),),
}


class Unavailable(Exception):  # noqa: N818 - it is no error: a part of the tool does without
    """A library cannot be built or loaded; the message says why, in a few words."""


def made_or_why(make: Callable[[], Library]) -> Library | Unavailable:
    """The result of `make`, or why it failed: `make` calls `open_or_build`."""
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


def built(stem: str, suffix: str) -> Iterator[Path]:
    """The files of this name that came with the package and run here, the quickest first."""
    for end, _, needs in VARIANTS.get(platform.machine(), ()):
        path = BUILT / f"{stem}{end}{suffix}"
        if path.is_file() and (not needs or needs <= set(_processor().split())):
            yield path


def open_or_build(
    stem: str,
    source: Callable[[], str],
    flags: Sequence[str],
    open_library: Callable[[Path], Library],
    stands_for: Mapping[str, Sequence[str]] | None = None,
) -> Library:
    """Open a library with `open_library`: that of the package, or else one that is built if it is
    not cached.

    `stem` begins the file's name; for `stands_for` see `build`. Raises `Unavailable`, `OSError`
    or `subprocess.SubprocessError` if it cannot be built or opened.
    """
    if sys.platform != "linux":
        raise Unavailable(f"it was not tried on {sys.platform}")
    for path in built(stem, ".so"):
        with contextlib.suppress(OSError, Unavailable):  # it needs a newer system, or is damaged
            return open_library(path)
    by = compiler()
    if not by:
        raise Unavailable("no C++ compiler: install g++, or name one in CXX")
    text, flags = source(), (*FLAGS, "-march=native", *flags)
    name = f"{stem}-{_key(by, text, flags)}.so"
    directory = cache_directory("engine")
    if directory is not None and (directory / name).is_file():
        with contextlib.suppress(OSError, Unavailable):
            return open_library(directory / name)  # a damaged file is built again below
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return open_library(build(by, text, flags, directory / name, stands_for))
    # There is no cache; the library stays loaded when its file is removed.
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder:
        return open_library(build(by, text, flags, Path(folder) / name, stands_for))


def build(
    compiler: str,
    source: str,
    flags: Sequence[str],
    library: Path,
    stands_for: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Compile into a temporary file, then rename it to `library`.

    `stands_for` has the functions of libraries, by their names, that are loaded before this one;
    they need not be there when it is linked. Processes that build it at the same time write the
    same bytes.
    """
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=f"{library.name}.part-") as folder:
        links = []
        for name, functions in (stands_for or {}).items():
            links.append(f"{folder}/{name}")
            text = "".join(f"void {function}(void) {{}}\n" for function in functions)
            _compile(compiler, "c", text, ["-fPIC", f"-Wl,-soname,{name}"], links[-1])
        made = f"{folder}/{library.name}"
        _compile(compiler, "c++", source, [*flags, "-x", "none", *links], made)
        os.chmod(made, 0o755)
        os.replace(made, library)
    return library


def _compile(compiler: str, language: str, source: str, flags: Sequence[str], to: str) -> None:
    kind = "-c" if to.endswith(".o") else "-shared"
    command = [compiler, kind, "-x", language, "-", "-o", to, *flags]
    run = subprocess.run(command, input=source, capture_output=True, text=True, timeout=_PATIENCE)
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if "error" in line] or [run.stderr]
        raise Unavailable(f"{compiler} failed: {lines[0][:200]}")


def _key(compiler: str, source: str, flags: Sequence[str]) -> str:
    """A hash of all that a library depends on: sources, flags, compiler and processor."""
    about = os.stat(os.path.realpath(compiler))
    facts: Sequence[object] = (
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
    wanted = ("model name", "flags", "Features", "CPU part")
    with (
        contextlib.suppress(OSError),
        open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file,
    ):
        # Of the first processor: the kernel asks each one, as far as the file is read.
        first = takewhile(str.strip, file)
        return "\n".join(line.rstrip("\n") for line in first if line.startswith(wanted))
    return platform.processor()
