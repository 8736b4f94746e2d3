"""The journal that a `cache run` keeps in the cache while it runs.

The process holds a lock on the file. A command that finds the file unlocked knows that the run died
before it restored the wrappers.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import json_text, limits, locks
from rewriter.core.errors import RewriterError

NAME = ".rewriter-run.json"


@dataclass(frozen=True)
class Running:
    """A `cache run`: `wrappers` are the names of those that it put probes into, `others` the other
    caches in which it did so."""

    pid: int
    host: str
    started: float
    wrappers: tuple[str, ...]
    command: str
    others: tuple[str, ...] = ()


class Journal:
    """The journal of this process."""

    def __init__(self, directory: Path, command: str) -> None:
        self._path = directory / NAME
        self._command = command
        self._started = time.time()
        self._descriptor: int | None = None

    def write(self, wrappers: Iterable[str], *, others: Iterable[str] = ()) -> None:
        """Write which wrappers are about to be instrumented, before the first one is. `others` are
        the other caches with such wrappers."""
        facts = {
            "format": "rewriter.cache-journal",
            "version": 1,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": self._started,
            "command": self._command,
            "wrappers": sorted(wrappers),
            "others": sorted(others),
        }
        temporary = self._path.with_name(f"{NAME}.{os.getpid()}")
        descriptor = None
        try:
            # Locked before it gets its name, so that no command finds it unlocked.
            descriptor = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
            if not locks.take(descriptor):
                raise OSError(errno.EWOULDBLOCK, "another process holds a file of this name")
            os.write(descriptor, json_text.encode(facts).encode())
            os.replace(temporary, self._path)
        except OSError as error:
            if descriptor is not None:
                os.close(descriptor)
                temporary.unlink(missing_ok=True)
            raise RewriterError(
                "unwritable",
                f"cannot write {self._path}: {error.strerror}",
                hint="The cache must be writable; pass another one with --dir.",
            ) from error
        self._close()
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove the journal, after the wrappers were restored."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def running(directory: Path) -> Running | None:
    """The run that is in progress, if there is one."""
    entry = _open(directory)
    return entry[0] if entry and entry[1] else None


def interrupted(directory: Path) -> Running | None:
    """The run that died before it restored the wrappers, if there is one."""
    entry = _open(directory)
    return entry[0] if entry and not entry[1] else None


def remove(directory: Path) -> None:
    """Forget an interrupted run."""
    (directory / NAME).unlink(missing_ok=True)


def _open(directory: Path) -> tuple[Running, bool] | None:
    """The journal, and whether its process is alive."""
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        lives = not locks.take(descriptor, shared=True)
        return _parse(file.read(limits.JSON_BYTES + 1)), lives


def _parse(data: bytes) -> Running:
    """Parse a journal; one that cannot be read names no wrappers."""
    try:
        facts = json_text.parse_object(data)
        return Running(
            int(facts["pid"]),
            str(facts["host"]),
            float(facts["started"]),
            tuple(map(str, facts["wrappers"])),
            str(facts["command"]),
            tuple(map(str, facts.get("others", ()))),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return Running(0, "", 0.0, (), "rewriter cache run")
