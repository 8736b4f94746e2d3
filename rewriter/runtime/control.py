"""The control file of dormant probes: `rewriter control` writes it, instrumented programs read it.

    {"format": "rewriter.control", "version": 1, "id": "5f0c…", "probes": ["print"], …}

It is exchanged as a whole, and counts only if nobody but the user of the process can have written
it. Beside it, in `PATH.d/`, each wrapper of each process says what it does. `cpp/control.h` reads
and writes the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from .calls import Calls
from .sizes import parse_bytes

VARIABLE = "REWRITER_CONTROL"
FORMAT, STATUS, VERSION = "rewriter.control", "rewriter.control-status", 1
LARGEST = 1 << 16  # bytes


class ControlError(Exception):
    """Why a control file does not count."""


@dataclass(frozen=True)
class Control:
    """What is on. No `probes` are none; no `kernels`, and empty `launches` and `ranks`, are all.

    `kernels` are patterns, whatever their case; `launches` and `ranks` numbers and ranges as
    `Calls` reads them. `calls` is how many calls each wrapper of each process records, 0 for no
    limit, of those each `every`th. After `until`, in milliseconds since 1970, nothing is recorded;
    0 is no end. `dump` is the directory of the dump, empty for that of the program; it keeps the
    last `keep` calls of each wrapper, 0 for all, and has at most `max_bytes` of each process, as
    `--max-bytes` takes them, empty for no limit. With `quiet` nothing is printed.
    `id` tells one request from the next.
    """

    id: str
    probes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    launches: str = ""
    ranks: str = ""
    calls: int = 0
    every: int = 1
    until: int = 0
    dump: str = ""
    keep: int = 0
    max_bytes: str = ""
    quiet: bool = False

    def text(self) -> str:
        """The content of the file."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}) + "\n"

    def has_rank(self, rank: int) -> bool:
        """Whether the processes of this rank are meant."""
        return not self.ranks or rank in Calls(self.ranks)

    def has_launch(self, index: int, kernel: str) -> bool:
        """Whether a launch is meant."""
        return (not self.launches or index in Calls(self.launches)) and (
            not self.kernels
            or any(fnmatchcase(kernel.lower(), pattern.lower()) for pattern in self.kernels)
        )

    def is_over(self) -> bool:
        """Whether its time is up."""
        return bool(self.until) and time.time() * 1000 >= self.until


def read(path: str) -> Control:
    """The request in a file. Raises `ControlError` for what does not count."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ControlError(os.strerror(error.errno or 0)) from error
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise ControlError("it is no file")
        if about.st_uid != os.geteuid():
            raise ControlError("it belongs to another user")
        if about.st_mode & 0o022:
            raise ControlError("others than its owner can write it: chmod go-w")
        data = os.read(file, LARGEST + 1)
    except OSError as error:
        raise ControlError(os.strerror(error.errno or 0)) from error
    finally:
        os.close(file)
    return parse(data)


def parse(data: bytes) -> Control:
    """The request of a file's content. Raises `ControlError`."""
    try:
        facts = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError) as error:
        raise ControlError("it is no JSON") from error
    if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
        raise ControlError(f"it is no {FORMAT}")
    if facts.pop("version", None) != VERSION:
        raise ControlError("it has another version")
    for name, value in facts.items():
        if not _is_valid(name, value):
            raise ControlError(f"{name} is not as it has to be")
    if "id" not in facts:
        raise ControlError("it has no id")
    found: dict[str, Any] = {x: tuple(y) if isinstance(y, list) else y for x, y in facts.items()}
    return Control(**found)


def _is_valid(name: str, value: object) -> bool:
    if name in ("probes", "kernels"):
        return isinstance(value, list) and all(type(one) is str for one in value)
    if name in ("calls", "every", "until", "keep"):
        return type(value) is int and (name == "every") <= value < 1 << 53
    if name == "quiet":
        return type(value) is bool
    if name in ("launches", "ranks"):
        with contextlib.suppress(ValueError):
            return type(value) is str and (not value or bool(Calls(value)))
        return False
    if name == "max_bytes":
        with contextlib.suppress(ValueError):
            return type(value) is str and (not value or bool(parse_bytes(value)))
        return False
    return name in ("id", "dump") and type(value) is str


def tell(path: str, number: int, facts: Mapping[str, Any]) -> None:
    """Write beside the control file what the `number`th wrapper of this process does.

    Nothing is written where there is no directory for it, or it is another user's.
    """
    folder = f"{path}.d"
    with contextlib.suppress(OSError):
        about = os.stat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return
        host = socket.gethostname()
        known = {"format": STATUS, "version": VERSION, "host": host, "pid": os.getpid(), **facts}
        name = f"{folder}/{host}-{os.getpid()}-{number}.json"
        temporary = f"{name}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(known) + "\n")
        os.replace(temporary, name)
