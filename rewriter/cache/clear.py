"""Removes what was made from instrumented wrappers: builds, compiled graphs, partial files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.cache import journal
from rewriter.cache.slots import Cache
from rewriter.core import locks, markers
from rewriter.core.errors import FAILED, RewriterError

_LOCKS = "locks"  # of Inductor, held while it builds
_GRAPHS = ("fxgraph", "aotautograd")


def built(directory: Path, *, keep: Container[str] = ()) -> list[Path]:
    """The sources that Inductor built from instrumented C++, except those of the originals in
    `keep`, which are hashes. They are named by their text: only instrumented wrappers use them."""
    sources = []
    for source in sorted(directory.glob("[!.][!.]/*.cpp")):
        header = markers.find_header(source.read_bytes())
        if header is not None and header.sha256 not in keep:
            sources.append(source)
    return sources


def products(directory: Path, *, keep: Container[str] = ()) -> int:
    """Remove what was built from instrumented C++. Returns the number of builds.

    A build that is in progress is left alone.
    """
    count = 0
    with _reported():
        sources = built(directory, keep=keep)
    for source in sources:
        stem = source.name.partition(".")[0]
        lock = directory / _LOCKS / f"{stem}.lock"
        with _reported(), _free(lock) as is_free:
            if is_free:
                # The source last: while it exists, the next command finds the unfinished removal.
                rest = (path for path in source.parent.glob(f"{stem}.*") if path != source)
                for path in [*rest, lock, source]:
                    _remove(path)
                count += 1
    return count


def graphs(directory: Path, *, keep: Container[str] = ()) -> int:
    """Remove compiled graphs with the text of an instrumented wrapper. Returns their number.

    A program that compiles while its wrapper is instrumented reads the text back from the disk and
    stores it in its cache of graphs (`FxGraphCache` in torch/_inductor/codecache.py), which would
    write it again if the wrapper is missing. Without the entry, the program compiles once more.
    """
    count = 0
    with _reported():
        for path in (path for name in _GRAPHS for path in sorted((directory / name).rglob("*"))):
            if path.is_file():
                header = markers.find_header(path.read_bytes())
                if header is not None and header.sha256 not in keep:
                    path.unlink(missing_ok=True)
                    count += 1
    return count


def temporary(cache: Cache) -> None:
    """Remove the partial files of a command that was stopped while it wrote."""
    with _reported():
        for path in [*cache.temporary, *cache.directory.glob(f"{journal.NAME}.*")]:
            path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    # A build that was stopped leaves the directory in which torch builds (`NAME.main_CxxBuild`).
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _reported() -> Iterator[None]:
    """Report an error of the file system as ours: the wrappers are restored by then."""
    try:
        yield
    except OSError as error:
        raise RewriterError(
            "left-behind",
            f"the wrappers are as requested, but {error.filename} could not be removed:  "
            f"{error.strerror}",
            hint="`rewriter cache restore` tries again.",
            code=FAILED,
        ) from error


@contextmanager
def _free(lock: Path) -> Iterator[bool]:
    """Try to take a lock of Inductor's, and hold it; yields whether it was free."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        yield locks.take(descriptor)
    finally:
        os.close(descriptor)
