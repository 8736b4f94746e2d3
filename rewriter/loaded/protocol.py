"""What `rewriter attach` and a program that listens say to each other.

The program has a socket, `DIRECTORY/PID.sock`, that only its user can open. A client sends one line
of JSON, a `Request`, and reads lines: `{"state": "probing"}` once probes are in, and in the end
`{"state": "done", …}` or `{"state": "refused", …}`. When it closes its end before, probes go out.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

VERSION = 1
LONGEST = 1 << 16  # bytes of a line


class NotOursError(Exception):
    """Something in the place of the socket, or of its directory, belongs to somebody else."""


def directory() -> Path:
    """Where sockets of this user are, whatever the environment says: both sides have to agree."""
    mine = Path(f"/run/user/{os.getuid()}")
    if mine.is_dir() and mine.stat().st_uid == os.getuid() and os.access(mine, os.W_OK):
        return mine / "rewriter"
    return Path(f"/tmp/rewriter-{os.getuid()}")


def socket_path(pid: int) -> Path:
    return directory() / f"{pid}.sock"


def make_directory() -> Path:
    """The directory, made where it is not there. Raises `NotOursError` where others could write
    to it."""
    path = directory()
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise NotOursError(f"{path} is not a directory of this user's alone")
    return path


def require_ours(path: Path) -> None:
    """Raise `NotOursError` where a socket is not one of this user's, in such a directory, and
    `FileNotFoundError` where there is none."""
    status = path.lstat()
    make_directory()
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise NotOursError(f"{path} is no socket of this user's")
