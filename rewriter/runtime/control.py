"""The control file of dormant probes: `rewriter control` writes it, instrumented programs read it.

    {"format": "rewriter.control", "version": 1, "id": "5f0c…", "probes": ["print"], …}

The file is replaced as a whole. A program ignores it unless only the program's own user can write
it. In `PATH.d/` beside the file, each wrapper of each process reports its state. `cpp/control.h`
reads and writes the same format.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from typing import Any

from .calls import Calls
from .sizes import parse_bytes

VARIABLE = "REWRITER_CONTROL"
FORMAT, STATUS, VERSION = "rewriter.control", "rewriter.control-status", 1
LARGEST = 1 << 16  # bytes


class ControlError(Exception):
    """The control file is invalid; the message says why."""


@dataclass(frozen=True)
class Control:
    """One request: which probes are on, and for what."""

    id: str  # differs from that of the previous request
    probes: tuple[str, ...] = ()  # empty: everything is off
    kernels: tuple[str, ...] = ()  # patterns, case-insensitive; empty: all
    launches: str = ""  # numbers and ranges as `Calls` reads them; empty: all
    ranks: str = ""  # as `launches`
    calls: int = 0  # how many calls each wrapper of each process records; 0: no limit
    every: int = 1  # record every n-th call
    until: int = 0  # record nothing after this time, milliseconds since 1970; 0: no end
    dump: str = ""  # the dump directory; empty: that of the program
    keep: int = 0  # how many calls of each wrapper the dump keeps, the last ones; 0: all
    max_bytes: str = ""  # limit of the dump per process, as for `--max-bytes`; empty: none
    quiet: bool = False  # print nothing

    def text(self) -> str:
        """The request as the text of a control file."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}) + "\n"


def read(path: str) -> Control:
    """Read the request in a control file. Raises `ControlError` if the file is invalid."""
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
    """Parse the content of a control file. Raises `ControlError` if it is invalid."""
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
