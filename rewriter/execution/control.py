"""Switches dormant probes of running programs: writes the control file, and reads their state.

`rewriter/runtime/control.py` describes the file, and the state files beside it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.text import counted, seconds
from rewriter.core.transaction import unwritable
from rewriter.dump.ring import copy_ring, rings_of
from rewriter.instrumentation import probes as known_probes
from rewriter.instrumentation.select import check_bytes, check_number
from rewriter.runtime import control as runtime
from rewriter.runtime.calls import Calls
from rewriter.runtime.control import STATUS, VARIABLE, Control, ControlError, parse


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
    probes = known_probes.check(_listed(names))
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
    try:
        data = control.text().encode("utf-8", "surrogateescape")
        if len(data) > runtime.LARGEST:
            raise ControlError(f"it has {len(data):,} bytes; at most {runtime.LARGEST:,} are read")
        if (known := parse(data)) != control:
            raise ControlError("a name has a line break")
        return known
    except ControlError as problem:
        raise RewriterError(
            "bad-control",
            f"no program would accept this request: {problem}",
            hint="Nothing was switched. Ask for less: fewer names, or shorter times.",
        ) from problem


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def off() -> Control:
    """The request that switches everything off."""
    return Control(id=secrets.token_hex(8))


def _numbers(option: str, text: str) -> str:
    numbers = "".join(text.split())
    try:
        Calls(numbers)
    except ValueError as error:
        raise RewriterError(
            "bad-calls",
            f"{option} {text!r}: {error}",
            hint="Write numbers and ranges of them, such as 0,3-5 or 100-.",
        ) from error
    return numbers


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
    "kernels": lambda _, text: _listed(text),
    "launches": _numbers,
    "ranks": _numbers,
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
            file.write(control.text().encode("utf-8", "surrogateescape"))
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
        return runtime.read(os.fspath(path))
    except ControlError as problem:
        if not os.path.lexists(path):
            return None
        raise RewriterError(
            "bad-control",
            f"{path}: {problem}",
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
