"""Switches dormant probes of running programs: writes the control file, and reads their state.

    rewriter.control 1
    id=5f0c…
    probes=print,hash
    …

Names are those of `Control`; lists are separated by commas. The file is replaced as a whole. A
program ignores it unless only the program's own user can write it. In `PATH.d/` beside the file,
each wrapper of each process reports its state. Programs read the one and write the other in
`rewriter/runtime/cpp/control.h`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.quantities import comma_separated
from rewriter.core.text import counted, seconds
from rewriter.core.transaction import unwritable
from rewriter.dump.ring import copy_ring, rings_of
from rewriter.instrumentation import probes as known_probes
from rewriter.instrumentation.select import check_bytes, check_calls, check_number

VARIABLE = "REWRITER_CONTROL"
FORMAT, STATUS, VERSION = "rewriter.control", "rewriter.control-status", 1
LARGEST = 1 << 16  # bytes of the file


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

    def encoded(self) -> bytes:
        """The content of a control file."""
        lines = [f"{FORMAT} {VERSION}"]
        for name, value in asdict(self).items():
            text = ",".join(value) if isinstance(value, tuple) else value
            lines.append(f"{name}={int(text) if isinstance(text, bool) else text}")
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _parsed(data: bytes) -> Control:
    """The request in the content of a control file. Raises `ValueError` if it is invalid."""
    head, *lines = data[: LARGEST + 1].decode("utf-8", "surrogateescape").split("\n")
    if len(data) > LARGEST or head.partition(" ")[0] != FORMAT:
        raise ValueError(f"it is no {FORMAT}")
    if head != f"{FORMAT} {VERSION}":
        raise ValueError("it has another version")
    kinds = {field.name: field.type for field in fields(Control)}
    found: dict[str, Any] = {}
    for line in filter(None, lines):
        name, _, text = line.partition("=")
        try:
            found[name] = _value(name, str(kinds[name]), text)
        except (KeyError, ValueError, RewriterError) as error:
            raise ValueError(f"{name} is not as it has to be") from error
    if "id" not in found or found.get("every") == 0:
        raise ValueError("every is not as it has to be" if "id" in found else "it has no id")
    return Control(**found)


def _value(name: str, kind: str, text: str) -> Any:
    """What a line of the file says."""
    if name in ("launches", "ranks"):
        return check_calls(text)
    if name == "max_bytes":
        return check_bytes(text)
    if kind in ("int", "bool"):
        if not (text.isascii() and text.isdecimal() and int(text[:17]) < 1 << 53):
            raise ValueError(text)
        return int(text) if kind == "int" else int(text) != 0
    return text if kind == "str" else comma_separated(text)


@dataclass(frozen=True)
class WrapperState:
    """The state of a wrapper in a process: which probes are `on`, and how many calls it `recorded`
    for its last request. `is_current` says whether that is the request in the file."""

    host: str
    pid: int
    rank: int
    wrapper: str
    on: tuple[str, ...]
    recorded: int
    is_current: bool


@dataclass(frozen=True)
class ControlState:
    """The request in the control file, and the wrappers of running processes."""

    request: Control | None
    wrappers: tuple[WrapperState, ...]


def path_of(target: str) -> Path:
    """The control file. `target` is its path, or the ID of a process whose environment has it."""
    if not _is_process(target):
        return Path(target).absolute()
    try:
        environment = Path(f"/proc/{target}/environ").read_bytes()
        folder = os.readlink(f"/proc/{target}/cwd")
    except FileNotFoundError as error:
        raise _no_control(f"there is no process {target}") from error
    except OSError as error:
        raise _no_control(
            f"process {target} is not yours: {os.strerror(error.errno or 0)}"
        ) from error
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == VARIABLE.encode() and value:
            return Path(folder, os.fsdecode(value))
    raise _no_control(f"process {target} was started without {VARIABLE}")


def _is_process(target: str) -> bool:
    return target.isascii() and target.isdecimal() and not os.path.exists(target)


def _no_control(message: str) -> RewriterError:
    return RewriterError(
        "no-control",
        message,
        hint=f"Start the program with {VARIABLE}=PATH, and pass PATH; its wrappers need dormant "
        "probes: rewriter instrument --dormant.",
    )


def request(names: str, **options: Any) -> Control:
    """A new request from the command line, by the names of its options. Raises `RewriterError` if
    it is invalid."""
    probes = known_probes.check(comma_separated(names))
    if not probes:
        raise RewriterError("no-probes", "no probe was asked for", hint="Name one, such as print.")
    if fixed := sorted({*probes} - {*known_probes.SWITCHED, "inputs", "record"}):
        raise RewriterError(
            "idle-options",
            f"{', '.join(fixed)} given, but no wrapper has such a probe dormant",
            hint="To use it, put it into the wrapper itself: rewriter run --probe.",
        )
    given = {name: value for name, value in options.items() if value is not None}
    control = Control(
        secrets.token_hex(8),
        probes,
        **{name: _READ[name](f"--{name.replace('_', '-')}", x) for name, x in given.items()},
    )
    data = control.encoded()
    try:
        if len(data) > LARGEST:
            raise ValueError(f"it has {len(data):,} bytes; at most {LARGEST:,} are read")
        if (known := _parsed(data)) != control:
            raise ValueError("a name has a line break")
        return known
    except ValueError as problem:
        raise RewriterError(
            "bad-control",
            f"no program would accept this request: {problem}",
            hint="Nothing was switched. Ask for less: fewer names, or shorter times.",
        ) from problem


def off() -> Control:
    """The request that switches everything off."""
    return Control(id=secrets.token_hex(8))


def _end(option: str, text: str) -> int:
    """The time when a span of it is over, in milliseconds since 1970."""
    span = seconds(text)
    if not span:
        raise RewriterError(
            "bad-number",
            f"--for is {text!r}",
            hint="Expected a time such as 500ms, 30s, 10m or 2h.",
        )
    return int((time.time() + span) * 1000)


# What each field of a request is, by its option and what was given for it.
_READ: dict[str, Callable[[str, Any], Any]] = {
    "kernels": lambda _, text: comma_separated(text),
    "launches": lambda option, text: check_calls(text or ",", option=option),
    "ranks": lambda option, text: check_calls(text or ",", option=option),
    "calls": check_number,
    "every": check_number,
    "until": _end,
    "dump": lambda _, path: os.path.abspath(path),  # the process may be in another directory
    "keep": check_number,
    "max_bytes": lambda _, size: check_bytes(size),
    "quiet": lambda _, value: value,
}


def write(path: Path, control: Control) -> None:
    """Replace the file atomically; only its owner can read and write it."""
    _current(path)
    folder = Path(f"{path}.d")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(control.encoded())
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise _no_control(f"there is no directory {path.parent}") from error
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise RewriterError(
            "bad-control",
            f"{path} cannot be written: {error.strerror}",
            hint="Only the user who runs the program can switch its probes.",
        ) from error
    except OSError as error:  # such as no room, or a file system that takes no writes
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _current(path: Path) -> Control | None:
    """The request in the file, if there is one. Raises `RewriterError` for another file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise ValueError("it is no file")
            if about.st_uid != os.geteuid():
                raise ValueError("it belongs to another user")
            if about.st_mode & 0o022:
                raise ValueError("others than its owner can write it: chmod go-w")
            return _parsed(os.read(file, LARGEST + 1))
        finally:
            os.close(file)
    except (OSError, ValueError) as problem:
        if not os.path.lexists(path):
            return None
        why = os.strerror(problem.errno or 0) if isinstance(problem, OSError) else problem
        raise RewriterError(
            "bad-control",
            f"{path}: {why}",
            hint="Programs keep their current probes. Remove the file, and switch again.",
        ) from problem


def read(path: Path) -> ControlState:
    """The request in the file, and the state of the wrappers."""
    control = _current(path)
    return ControlState(control, tuple(_wrappers(path, control)))


def _wrappers(path: Path, control: Control | None) -> Iterator[WrapperState]:
    host = socket.gethostname()
    for file in sorted(Path(f"{path}.d").glob("*.json")):
        try:
            facts = json_text.parse_object(file.read_bytes())
            if facts["format"] != STATUS:
                continue
            is_current = control is not None and facts["id"] == control.id
            found = msgspec.convert(facts | {"is_current": is_current}, WrapperState)
        except (OSError, ValueError, KeyError):
            continue  # incomplete, or not ours
        if found.host == host and not os.path.exists(f"/proc/{found.pid}"):
            with contextlib.suppress(OSError):  # another command may remove it at the same time
                file.unlink(missing_ok=True)
        else:
            yield found


def rings(target: str) -> tuple[tuple[int, Path], ...]:
    """The rings that processes record into, with process IDs. `target` is a process ID, or the path
    of a control file for all processes that use it."""
    if is_process := _is_process(target):
        pids = [int(target)] if len(target) < 10 else []
    else:
        path = Path(target).absolute()
        host = socket.gethostname()
        pids = sorted({wrapper.pid for wrapper in read(path).wrappers if wrapper.host == host})
    found: list[tuple[int, Path]] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += [(pid, ring) for ring in rings_of(pid)]
    if not found:
        raise RewriterError(
            "not-recorded",
            f"process {target[:20]} records nothing"
            if is_process
            else f"no process of {target} records anything",
            hint="The process must be yours, on this machine, and have run a wrapper with the "
            "probe record: rewriter instrument --probe record.",
        )
    return tuple(found)


def copy(found: Iterable[tuple[int, Path]], folder: Path) -> None:
    """Copy rings into a dump: all of them, or none."""
    try:
        for _, ring in found:
            copy_ring(ring, folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise unwritable(folder, error) from error
        raise


def describe(path: Path, state: ControlState) -> Iterator[str]:
    """The lines of `rewriter control`."""
    control = state.request
    if control is None:
        yield f"{path}: nothing was switched yet"
    elif not control.probes:
        yield f"{path}: off"
    else:
        yield f"{path}: {', '.join(control.probes)}{_limits(control)}"
    for wrapper in state.wrappers:
        state_text = ", ".join(wrapper.on) if wrapper.on else "off"
        later = "" if wrapper.is_current else ", not this request yet"
        yield (
            f"  {wrapper.host} process {wrapper.pid} rank {wrapper.rank}  {wrapper.wrapper}: "
            f"{state_text}, {counted(wrapper.recorded, 'call')} recorded{later}"
        )
    if control is not None and not state.wrappers:
        yield "  no call of a program has seen it yet"


def _limits(control: Control) -> str:
    left = (control.until - time.time() * 1000) / 1000
    parts = [
        control.kernels and f"kernels {', '.join(control.kernels)}",
        control.launches and f"launches {control.launches}",
        control.ranks and f"ranks {control.ranks}",
        control.calls and counted(control.calls, "call"),
        control.every > 1 and f"one call in {control.every}",
        control.until and (f"for {left:.1f} s more" if left > 0 else "its time is up"),
        control.dump and f"into {control.dump}",
        control.keep and f"keeping {counted(control.keep, 'call')}",
        control.max_bytes and f"at most {control.max_bytes}",
    ]
    return "".join(f"; {part}" for part in parts if part)
