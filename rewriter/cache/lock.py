"""One command at a time in a cache. The lock is on the directory itself: it leaves no file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.artifact.recognise import unreadable
from rewriter.cache import journal
from rewriter.core import locks
from rewriter.core.errors import FAILED, RewriterError


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the cache. Raises `RewriterError` if another command does."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unreadable(directory, error) from error
    try:
        if not _take(descriptor, directory):
            raise _busy(directory)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _take(descriptor: int, directory: Path) -> bool:
    try:
        return locks.take(descriptor)
    except OSError as error:
        raise RewriterError(
            "cache-lock",
            f"cannot lock {directory}: {error.strerror}",
            hint="Its file system has no locks. Pass a cache on another one with --dir.",
            code=FAILED,
        ) from error


def _busy(directory: Path) -> RewriterError:
    running = journal.running(directory)
    who = f"`{running.command}` (process {running.pid})" if running else "another command"
    return RewriterError(
        "cache-busy",
        f"{who} is at work in {directory}",
        hint="Wait for it to end; `rewriter cache status` says when it has. A program with a cache "
        "of its own need not wait: set TORCHINDUCTOR_CACHE_DIR to a new directory.",
    )
