"""The protocol between `rewriter attach` and a program that listens.

The program has a socket, `DIRECTORY/PID.sock`, that only its user can open. A client sends one line
of JSON, a `Request`, and reads lines: `{"state": "probing"}` once probes are added, and at the end
`{"state": "done", …}` or `{"state": "refused", …}`. If it closes its end earlier, the probes are
removed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

VERSION = 1
LONGEST = 1 << 16  # bytes of a line


class NotOursError(Exception):
    """The socket's path, or its directory, belongs to another user."""


def directory() -> Path:
    """The directory of this user's sockets. Ignores the environment: both sides have to agree."""
    mine = Path(f"/run/user/{os.getuid()}")
    if mine.is_dir() and mine.stat().st_uid == os.getuid() and os.access(mine, os.W_OK):
        return mine / "rewriter"
    return Path(f"/tmp/rewriter-{os.getuid()}")


def socket_path(pid: int) -> Path:
    return directory() / f"{pid}.sock"


def make_directory() -> Path:
    """The directory, which is made if it is missing. Raises `NotOursError` if others could write
    to it."""
    path = directory()
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise NotOursError(f"{path} is not a directory of this user's alone")
    return path


def require_ours(path: Path) -> None:
    """Raise `NotOursError` if a socket is not one of this user's in such a directory, and
    `FileNotFoundError` if there is none."""
    status = path.lstat()
    make_directory()
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise NotOursError(f"{path} is no socket of this user's")
