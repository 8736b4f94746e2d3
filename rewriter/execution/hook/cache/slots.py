"""Reads a cache: the wrappers in it, and the state of each; chooses among them by name and by the
kernels that they launch. Writes nothing.

A wrapper is `<cache>/xx/<hash>.py`. Earlier versions put probes into it, and kept the original
beside it as `<hash>.py.orig`. Links are not followed: what they point to is in no cache.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rewriter.artifact.locate_all import locate_all
from rewriter.artifact.recognise import unreadable
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.files import backup_path
from rewriter.core.labels import short
from rewriter.core.printed import printed
from rewriter.instrumentation.matching import matches

if TYPE_CHECKING:
    from rewriter.core.documents import Count

TEMPORARY = ".rewriter-tmp"  # the suffix of files that are being written

# `edited`: its probes cannot be removed exactly.
SlotState = Literal["plain", "instrumented", "edited"]
BackupKind = Literal["none", "original", "foreign"]

_FOLDERS = "[!.][!.]"  # Inductor names them after two characters of a hash
_KERNEL = b"@triton.jit"
_PREFIX = 6  # characters of a hash that identify it


@printed("wrapper=name path modified state backup probes")
@dataclass(frozen=True)
class Slot:
    """The place of one wrapper. `name` is its path in the cache, `modified` the time of the plain
    file in seconds since 1970; `wrapper` was read, but not located yet.

    `backup` is `foreign` if another file than the original is in its place.
    """

    path: Path
    name: str
    state: SlotState
    backup: BackupKind
    modified: float
    wrapper: Wrapper = field(repr=False, compare=False)

    @property
    def short(self) -> str:
        """A name for tables and sentences: enough of the hash to identify the wrapper."""
        return short(self.path)

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes in it."""
        return self.wrapper.probes.probes if self.wrapper.probes else ()


@dataclass(frozen=True)
class Cache:
    """The content of a cache, with the newest wrapper first.

    `kernels` counts files of Triton kernels, `foreign` are other Python files that are not
    wrappers, `temporary` are partial files of a command that was stopped while it wrote.
    """

    directory: Path
    slots: tuple[Slot, ...]
    kernels: Count
    foreign: tuple[str, ...]
    temporary: tuple[Path, ...]


def scan(directory: Path) -> Cache:
    """Read every wrapper of a cache. Raises `RewriterError` if a file cannot be read."""
    try:
        return _scan(directory)
    except OSError as error:
        raise unreadable(Path(error.filename or directory), error) from error


def _scan(directory: Path) -> Cache:
    slots: list[Slot] = []
    foreign: list[str] = []
    kernels = 0
    for path in sorted(directory.glob(f"{_FOLDERS}/*.py")):
        if path.parent.is_symlink():
            continue
        data = _read(path)
        if data is None:
            continue
        if (slot := _slot(path, data)) is not None:
            slots.append(slot)
        elif _KERNEL in data:
            kernels += 1
        else:
            foreign.append(str(path.relative_to(directory)))
    slots.sort(key=lambda slot: (-slot.modified, slot.name))
    partial = sorted(directory.glob(f"{_FOLDERS}/.*{TEMPORARY}"))
    temporary = (path for path in partial if not path.parent.is_symlink())
    return Cache(directory, tuple(slots), kernels, tuple(foreign), tuple(temporary))


def _slot(path: Path, data: bytes) -> Slot | None:
    name = f"{path.parent.name}/{path.name}"
    wrapper = read_wrapper(path, name, data)
    if wrapper is None:
        return None
    backup: BackupKind = "foreign" if os.path.lexists(backup_path(path)) else "none"
    state: SlotState = "plain"
    if wrapper.probes is not None:
        state = "instrumented" if wrapper.restored.exact else "edited"
        kept = _read(backup_path(path))
        if kept is not None and hashlib.sha256(kept).hexdigest() == wrapper.probes.sha256:
            backup = "original"
    modified = os.stat(backup_path(path) if backup == "original" else path).st_mtime
    return Slot(path, name, state, backup, modified, wrapper)


def is_file(path: Path) -> bool:
    """Whether a path is a file itself: no link, pipe or directory."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _read(path: Path) -> bytes | None:
    """The bytes of a file; `None` if there is none, or something else."""
    try:
        return path.read_bytes() if is_file(path) else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RewriterError(
            "unreadable",
            f"cannot read {path}: {error.strerror}",
            hint="Run as the user whose cache this is, or pass another one with --dir.",
        ) from error


def choose(
    cache: Cache, globs: Sequence[str], kernels: Sequence[str]
) -> tuple[tuple[Slot, ...], tuple[tuple[str, str], ...]]:
    """The wrappers of a cache that match any of the globs and launch any of the kernels, if there
    are some; and those that cannot be read, each with the reason."""
    broken: list[tuple[str, str]] = []
    chosen: list[Slot] = []
    candidates = [slot for slot in cache.slots if is_named(slot.path, globs)]
    locate_all(slot.wrapper for slot in candidates)
    for slot in candidates:
        try:
            launches = slot.wrapper.located.launches
        except RewriterError as error:
            broken.append((slot.name, error.message))
            continue
        if not kernels or any(matches(launch.kernel, kernels) for launch in launches):
            chosen.append(slot)
    return tuple(chosen), tuple(broken)


def is_named(path: Path, globs: Sequence[str]) -> bool:
    """Whether a wrapper has one of these names: its hash or the start of it, its file, its path."""
    names = (f"{path.parent.name}/{path.name}", path.name, path.stem, str(path))
    return not globs or any(
        fnmatchcase(name, glob) or (len(glob) >= _PREFIX and path.stem.startswith(glob))
        for name in names
        for glob in globs
    )
