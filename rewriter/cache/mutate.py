"""Writes the wrappers of a cache: puts probes in, and restores the originals.

Every step is one rename or one unlink. So a program finds a complete file at any moment, and a
command that is stopped between two steps leaves a state that `slots.py` recognises. The caller
holds the lock of the cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.cache import clear, journal
from rewriter.cache.slots import TEMPORARY, Cache, Slot, rescan
from rewriter.core.errors import RewriterError
from rewriter.core.files import backup_path
from rewriter.core.labels import labels
from rewriter.instrumentation.instrument import instrument_all, instrument_wrapper
from rewriter.instrumentation.types import Instrumented, Selection


@dataclass(frozen=True)
class Placed:
    """A wrapper that got probes."""

    slot: Slot
    result: Instrumented


@dataclass(frozen=True)
class Refused:
    """A wrapper that was left as it is, and why."""

    slot: Slot
    error: RewriterError


@dataclass(frozen=True)
class Cleared:
    """The result of a restore, as names in the cache.

    `restored` are plain again; `stripped` had been edited, and keep the edits; `left` had been
    edited and were not changed. `products` counts the builds of instrumented C++ that were removed,
    `graphs` the compiled graphs with the text of an instrumented wrapper.
    """

    restored: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    products: int = 0
    graphs: int = 0


def instrument(
    slots: Iterable[Slot],
    selection: Selection,
    *,
    overwrite: bool = False,
    beside: Iterable[Slot] = (),
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[tuple[Placed, ...], tuple[Refused, ...]]:
    """Put probes into wrappers, replacing those that are there.

    A wrapper that cannot have them is refused, and the others go on. If writing fails, or `go_on`
    returns false, the wrappers of this call are restored. Wrappers that keep their earlier probes
    are `beside`: labels tell apart what all of them print. Only `overwrite` discards a backup that
    is not ours, or edits made since a wrapper was instrumented.
    """
    placed: list[Placed] = []
    refused: list[Refused] = []
    slots = tuple(slots)
    others = [slot for slot in beside if slot.probes and slot.path not in {x.path for x in slots}]
    among = labels([(slot.wrapper.graph, slot.path.name) for slot in (*slots, *others)])
    among = among[: len(slots)]
    making = instrument_all(
        [slot.wrapper for slot in slots], selection, among, replace=True, standalone=True
    )
    try:
        for slot, label, made in zip(slots, among, making, strict=True):
            if not go_on():
                raise KeyboardInterrupt
            try:
                placed.append(_instrument(slot, selection, label, made, overwrite=overwrite))
            except RewriterError as error:
                if error.slug == "unwritable":
                    raise
                refused.append(Refused(slot, error))
    except BaseException:
        for one in placed:
            _undo(one.slot)
        raise
    finally:
        making.close()
    return tuple(placed), tuple(refused)


def restore(slots: Iterable[Slot], *, overwrite: bool = False) -> Cleared:
    """Make wrappers plain again. Edited ones are not changed unless `overwrite` is set."""
    restored: list[str] = []
    stripped: list[str] = []
    left: list[str] = []
    for slot in slots:
        if slot.state == "plain":
            continue
        if slot.state == "edited" and not overwrite:
            left.append(slot.name)
            continue
        with _reported(slot.path):
            _restore(slot)
        edited = slot.state == "edited" and slot.backup != "original"
        (stripped if edited else restored).append(slot.name)
    return Cleared(tuple(restored), tuple(stripped), tuple(left))


def _instrument(
    slot: Slot,
    selection: Selection,
    label: str,
    made: Callable[[], Instrumented],
    *,
    overwrite: bool,
) -> Placed:
    """Put probes into one wrapper. `made` returns the result for the wrapper as it was read."""
    if slot.state in ("leftover", "missing") or (slot.state == "edited" and overwrite):
        with _reported(slot.path):
            _restore(slot)
    now = rescan(slot)
    if now is None:
        raise _gone(slot.path)
    if now.wrapper == slot.wrapper:
        now = replace(now, wrapper=slot.wrapper)
        result = made()
    else:
        result = instrument_wrapper(
            now.wrapper, selection, replace=True, standalone=True, label=label
        )
    backup = backup_path(now.path)
    if now.backup == "foreign" and (backup.is_dir() or not overwrite):
        raise RewriterError(
            "exists",
            f"the backup {backup} exists already, and is not the original of {now.path.name}",
            hint="Move it away, or pass --overwrite to lose it.",
        )
    with _reported(now.path):
        if now.backup == "foreign":
            backup.unlink()
        if now.backup != "original":
            _keep(now, backup, result.original)
        try:
            _replace(now.path, result.source, backup)
        except BaseException:
            # A wrapper that did not get its probes needs no backup.
            if now.state == "plain":
                backup.unlink(missing_ok=True)
            raise
    return Placed(now, result)


def _keep(slot: Slot, backup: Path, original: bytes) -> None:
    """Make the backup: a hard link, if the file is the original and can have one."""
    if slot.state != "plain":
        _replace(backup, original, slot.path)
        return
    try:
        os.link(slot.path, backup, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links, or not to files of other users
        temporary = backup.with_name(f".{backup.name}{TEMPORARY}")
        temporary.unlink(missing_ok=True)
        shutil.copy2(slot.path, temporary, follow_symlinks=False)
        os.replace(temporary, backup)


def _restore(slot: Slot) -> None:
    backup = backup_path(slot.path)
    if slot.state == "leftover":
        backup.unlink(missing_ok=True)
    elif slot.backup == "original":
        os.replace(backup, slot.path)
    else:
        _replace(slot.path, slot.wrapper.restored.source, slot.path)


def _undo(before: Slot) -> None:
    """Restore a wrapper to the state before it got probes."""
    if before.state == "plain":
        os.replace(backup_path(before.path), before.path)
        return
    _replace(before.path, before.wrapper.source, backup_path(before.path))
    if before.backup == "none":
        backup_path(before.path).unlink()


def _replace(path: Path, data: bytes, like: Path) -> None:
    """Replace `path` by a new file with the mode and the owner of another one."""
    facts = os.stat(like)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            with contextlib.suppress(PermissionError):
                os.fchown(handle, facts.st_uid, facts.st_gid)
            os.fchmod(handle, stat.S_IMODE(facts.st_mode))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Report an error of the file system as ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise _gone(path) from error
    except OSError as error:
        raise RewriterError(
            "unwritable",
            f"cannot write {path}: {error.strerror}",
            hint="The cache must be writable; nothing was changed in it.",
        ) from error


def _gone(path: Path) -> RewriterError:
    return RewriterError(
        "unreadable",
        f"{path} is gone: it was removed meanwhile",
        hint="A program that needs it makes it again.",
    )


def clear_up(directory: Path, cleared: Cleared, *, keep: Container[str] = ()) -> Cleared:
    """After a restore, remove what was made from instrumented wrappers, except those in `keep`."""
    products = clear.products(directory, keep=keep)
    graphs = clear.graphs(directory, keep=keep)
    return replace(cleared, products=products, graphs=graphs)


def recover(cache: Cache, died: journal.Running) -> Cleared:
    """Restore the wrappers of an interrupted run, and remove its journal.

    A journal that names no wrappers may stand for all of them.
    """
    names = set(died.wrappers)
    cleared = restore(slot for slot in cache.slots if not names or slot.name in names)
    clear.temporary(cache)
    cleared = clear_up(cache.directory, cleared)
    journal.remove(cache.directory)
    return cleared
