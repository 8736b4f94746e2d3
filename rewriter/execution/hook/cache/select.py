"""Chooses wrappers of a cache by name, and by the kernels that they launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rewriter.artifact.locate_all import locate_all
from rewriter.core.errors import RewriterError
from rewriter.execution.hook.cache.slots import Cache, Slot
from rewriter.instrumentation.matching import matches

_PREFIX = 6  # characters of a hash that identify it


@dataclass(frozen=True)
class Chosen:
    """The chosen wrappers, newest first, and those that cannot be read, each with the reason."""

    slots: tuple[Slot, ...]
    broken: tuple[tuple[str, str], ...]


def choose(cache: Cache, globs: Sequence[str], kernels: Sequence[str]) -> Chosen:
    """The wrappers of a cache that match any of the globs and launch any of the kernels, if there
    are some."""
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
    return Chosen(tuple(chosen), tuple(broken))


def is_named(path: Path, globs: Sequence[str]) -> bool:
    """Whether a wrapper has one of these names: its hash or the start of it, its file, its path."""
    names = (f"{path.parent.name}/{path.name}", path.name, path.stem, str(path))
    return not globs or any(
        fnmatchcase(name, glob) or (len(glob) >= _PREFIX and path.stem.startswith(glob))
        for name in names
        for glob in globs
    )
