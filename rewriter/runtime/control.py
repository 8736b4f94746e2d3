"""The control file of dormant probes: `rewriter control` writes it, instrumented programs read it.

    rewriter.control 1
    id=5f0c…
    probes=print,hash
    …

Names are those of `Control`; lists are separated by commas. The file is replaced as a whole. A
program ignores it unless only the program's own user can write it. In `PATH.d/` beside the file,
each wrapper of each process reports its state. `cpp/control.h` reads and writes the same format.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
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
        lines = [f"{FORMAT} {VERSION}"]
        for name, value in asdict(self).items():
            text = ",".join(value) if isinstance(value, tuple) else value
            lines.append(f"{name}={int(text) if isinstance(text, bool) else text}")
        return "".join(f"{line}\n" for line in lines)


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
    head, *lines = data[: LARGEST + 1].decode("utf-8", "surrogateescape").split("\n")
    if len(data) > LARGEST or head.partition(" ")[0] != FORMAT:
        raise ControlError(f"it is no {FORMAT}")
    if head != f"{FORMAT} {VERSION}":
        raise ControlError("it has another version")
    found: dict[str, Any] = {}
    for line in filter(None, lines):
        name, _, value = line.partition("=")
        try:
            found[name] = _READ[name](value)
        except (KeyError, ValueError) as error:
            raise ControlError(f"{name} is not as it has to be") from error
    if "id" not in found or found.get("every") == 0:
        raise ControlError("every is not as it has to be" if "id" in found else "it has no id")
    return Control(**found)


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:17]) < 1 << 53):
        raise ValueError(text)
    return int(text)


def _numbers(text: str) -> str:
    if text:
        Calls(text)
    return text


def _size(text: str) -> str:
    if text:
        parse_bytes(text)
    return text


_READ: Mapping[str, Callable[[str], object]] = {
    "id": str,
    "dump": str,
    **dict.fromkeys(("probes", "kernels"), _list),
    **dict.fromkeys(("launches", "ranks"), _numbers),
    **dict.fromkeys(("calls", "every", "until", "keep"), _number),
    "max_bytes": _size,
    "quiet": lambda text: bool(_number(text)),
}
