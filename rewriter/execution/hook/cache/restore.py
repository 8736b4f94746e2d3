"""Restores the wrappers of a cache that were instrumented in place, as earlier versions did, and
removes what they left beside these.

Only what is provably ours is touched: a file with our header whose lines can be taken out, its
backup if that has the recorded hash, builds and compiled graphs of a text with our header, and
partial files of our own suffix. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import locks, markers
from rewriter.core.documents import Count
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.files import backup_path
from rewriter.execution.hook.cache.slots import TEMPORARY, Cache, Slot, is_file

_JOURNALS = ".rewriter-run.json*"  # of runs that died; those that live hold a lock
_LOCKS = "locks"  # of Inductor, held while it builds
_GRAPHS = ("fxgraph", "aotautograd")
# What torch makes of a C++ source, and where.
_BUILT, _BUILDING = (".so", ".o", ".h", ".cpp", ".lock", ".sha256"), "_CxxBuild"
_QUOTED = 2  # marked lines: a header alone has two


@dataclass(frozen=True)
class Restored:
    """The result of a restore, as names in the cache.

    `restored` are plain again; `left` had been edited and were not changed. `products` counts the
    builds of instrumented C++ that were removed, `graphs` the compiled graphs with the text of an
    instrumented wrapper.
    """

    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    products: Count = 0
    graphs: Count = 0


def restore(cache: Cache) -> Restored:
    """Make the wrappers of a cache plain again, less edited ones. Raises `RewriterError` if a file
    cannot be written."""
    done = [slot for slot in cache.slots if slot.state == "instrumented"]
    for slot in done:
        with _reported(slot.path):
            _restore(slot)
    with _left_behind():
        for path in (*cache.temporary, *cache.directory.glob(_JOURNALS)):
            if _is_in(path, cache.directory):
                _remove(path, [path])
        return Restored(
            tuple(slot.name for slot in done),
            tuple(slot.name for slot in cache.slots if slot.state == "edited"),
            _remove_products(cache.directory),
            _remove_graphs(cache.directory),
        )


def _restore(slot: Slot) -> None:
    backup = backup_path(slot.path)
    if slot.backup == "original":
        os.replace(backup, slot.path)
        return
    facts = os.lstat(slot.path)
    handle, temporary = tempfile.mkstemp(
        dir=slot.path.parent, prefix=f".{slot.path.name}.", suffix=TEMPORARY
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(slot.wrapper.restored.source)
            with contextlib.suppress(PermissionError):
                os.fchown(handle, facts.st_uid, facts.st_gid)
            os.fchmod(handle, stat.S_IMODE(facts.st_mode))
        os.replace(temporary, slot.path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove(lock: Path, paths: Iterable[Path]) -> bool:
    """Remove files and folders, unless a process holds the lock. Returns whether they are."""
    with _free(lock) as is_free:
        for path in paths if is_free else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return is_free


def built(directory: Path) -> list[Path]:
    """The sources that Inductor built from instrumented C++. They are named by their text: only
    instrumented wrappers use them."""
    found = sorted(directory.glob("[!.][!.]/*.cpp"))
    return [source for source in found if _is_in(source, directory) and _has_probes(source)]


def _remove_products(directory: Path) -> int:
    """Remove what was built from instrumented C++, except builds in progress."""
    count = 0
    for source in built(directory):
        lock = directory / _LOCKS / f"{source.name.partition('.')[0]}.lock"
        count += _remove(lock, _products(source, lock, directory))
    return count


def _products(source: Path, lock: Path, directory: Path) -> Iterator[Path]:
    """What was built from a source, looked for while the lock is held. The source last: while it
    exists, the next command finds the unfinished removal."""
    yield from [path for path in source.parent.iterdir() if _is_built(path, source)]
    if _is_in(lock, directory):
        yield lock
    yield source


def _is_built(path: Path, source: Path) -> bool:
    """Whether torch built a file from a source, or builds in a folder, by the name."""
    stem = source.name.partition(".")[0]
    if path == source or not path.name.startswith(f"{stem}."):
        return False
    return path.name.endswith(_BUILT if is_file(path) else _BUILDING)


def _has_probes(path: Path) -> bool:
    """Whether a file has the lines of our probes, and not only a header that somebody quotes."""
    data = path.read_bytes()
    header = markers.find_header(data)
    return header is not None and len(markers.marked_lines(data, header.tag)) > _QUOTED


def _is_in(path: Path, cache: Path) -> bool:
    """Whether a path is a file that is itself in a cache: no link leads to it."""
    return is_file(path) and (path.parent == cache or not path.parent.is_symlink())


def _remove_graphs(directory: Path) -> int:
    """Remove compiled graphs with the text of an instrumented wrapper: a program that compiled
    while its wrapper was instrumented stored that. It compiles once more without them."""
    count = 0
    for folder in (directory / name for name in _GRAPHS):
        for parent, _, names in os.walk(folder) if not folder.is_symlink() else ():
            for path in (Path(parent, name) for name in sorted(names)):
                if is_file(path) and _has_probes(path):
                    path.unlink(missing_ok=True)
                    count += 1
    return count


@contextmanager
def _free(lock: Path) -> Iterator[bool]:
    """Try to take a lock, and hold it; yields whether it was free."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            is_free = locks.take(descriptor)
        except OSError as error:  # its file system has no locks
            raise OSError(error.errno, error.strerror, str(lock)) from error
        yield is_free
    finally:
        os.close(descriptor)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Report an error of the file system as ours."""
    try:
        yield
    except OSError as error:
        raise RewriterError(
            "unwritable",
            f"cannot write {path}: {error.strerror}",
            hint="The cache must be writable; what was not restored is as it was.",
        ) from error


@contextmanager
def _left_behind() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RewriterError(
            "left-behind",
            f"the wrappers are as requested, but {error.filename} could not be removed: "
            f"{error.strerror}",
            hint="`rewriter cache restore` tries again.",
            code=FAILED,
        ) from error
