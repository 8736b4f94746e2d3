"""Chooses wrappers of a cache by name, by age and by the kernels that they launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rewriter.artifact.locate_all import locate_all
from rewriter.cache.slots import Cache, Slot
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.matching import matches

_PREFIX = 6  # characters of a hash that identify it


@dataclass(frozen=True)
class Choice:
    """Which wrappers to choose: those that match any of the `globs` and any of the `kernels`, of
    the last `since` seconds, and of these the `newest`. `None` or no globs means no restriction."""

    globs: tuple[str, ...] = ()
    kernels: tuple[str, ...] | None = None
    since: float | None = None
    newest: int | None = None


@dataclass(frozen=True)
class Chosen:
    """The chosen wrappers, newest first, and those that cannot be read, each with the reason."""

    slots: tuple[Slot, ...]
    broken: tuple[tuple[str, str], ...]


def choose(cache: Cache, choice: Choice, *, now: float) -> Chosen:
    """The wrappers of a cache that match a choice."""
    broken: list[tuple[str, str]] = []
    chosen: list[Slot] = []
    candidates = list(_candidates(cache, choice, now))
    locate_all(slot.wrapper for slot in candidates[: choice.newest])
    for slot in candidates:
        if choice.newest is not None and len(chosen) >= choice.newest:
            break
        try:
            launches = slot.wrapper.located.launches
        except RewriterError as error:
            broken.append((slot.name, error.message))
            continue
        wanted = choice.kernels
        if wanted is None or any(matches(one.kernel, wanted) for one in launches):
            chosen.append(slot)
    return Chosen(tuple(chosen), tuple(broken))


def is_named(path: Path, globs: tuple[str, ...]) -> bool:
    """Whether a wrapper has one of these names: its hash or the start of it, its file, its path."""
    names = (f"{path.parent.name}/{path.name}", path.name, path.stem, str(path))
    return not globs or any(
        fnmatchcase(name, glob) or (len(glob) >= _PREFIX and path.stem.startswith(glob))
        for name in names
        for glob in globs
    )


def _candidates(cache: Cache, choice: Choice, now: float) -> Iterator[Slot]:
    for slot in cache.slots:
        recent = choice.since is None or slot.modified >= now - choice.since
        if recent and is_named(slot.path, choice.globs):
            yield slot
