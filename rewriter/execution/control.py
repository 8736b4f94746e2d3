"""Switches dormant probes of running programs: writes the control file, and reads their state.

`rewriter/runtime/control.py` describes the file, and the state files beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.text import counted
from rewriter.core.transaction import unwritable
from rewriter.dump.process_rings import copy_ring, rings_of
from rewriter.instrumentation import probes as known_probes
from rewriter.instrumentation.select import check_bytes, check_number
from rewriter.runtime import control as runtime
from rewriter.runtime.calls import Calls
from rewriter.runtime.control import STATUS, VARIABLE, Control, ControlError, parse

_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
    """The control file. `target` is its path, or the ID of a process with the path in its
    environment."""
    if not (target.isascii() and target.isdecimal()) or os.path.exists(target):
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


def _no_control(message: str) -> RewriterError:
    return RewriterError(
        "no-control",
        message,
        hint=f"Start the program with {VARIABLE}=PATH, and pass PATH; its wrappers need dormant "
        "probes: rewriter instrument --dormant.",
    )


def request(
    names: str,
    *,
    kernels: str | None = None,
    launches: str | None = None,
    ranks: str | None = None,
    calls: int | None = None,
    every: int | None = None,
    span: str | None = None,
    dump: str | None = None,
    keep: int | None = None,
    max_bytes: str | None = None,
    quiet: bool = False,
) -> Control:
    """A new request from the command line. Raises `RewriterError` if it is invalid."""
    probes = known_probes.check(filter(None, map(str.strip, names.split(","))))
    if not probes:
        raise RewriterError("no-probes", "no probe was asked for", hint="Name one, such as print.")
    if fixed := sorted({*probes} - {*known_probes.SWITCHED, "inputs", "record"}):
        raise RewriterError(
            "idle-options",
            f"{', '.join(fixed)} given, but no wrapper has such a probe dormant",
            hint="To use it, put it into the wrapper itself: rewriter run --probe.",
        )
    made = Control(
        id=secrets.token_hex(8),
        probes=probes,
        kernels=tuple(filter(None, map(str.strip, (kernels or "").split(",")))),
        launches=_numbers("--launches", launches),
        ranks=_numbers("--ranks", ranks),
        calls=0 if calls is None else check_number("--calls", calls),
        every=1 if every is None else check_number("--every", every),
        until=0 if span is None else int(time.time() * 1000) + _milliseconds(span),
        # The process may have another working directory.
        dump="" if dump is None else os.path.abspath(dump),
        keep=0 if keep is None else check_number("--keep", keep),
        max_bytes="" if max_bytes is None else check_bytes(max_bytes),
        quiet=quiet,
    )
    try:
        data = made.text().encode()
        if len(data) > runtime.LARGEST:
            raise ControlError(f"it has {len(data):,} bytes; at most {runtime.LARGEST:,} are read")
        return parse(data)
    except ControlError as problem:
        raise RewriterError(
            "bad-control",
            f"no program would accept this request: {problem}",
            hint="Nothing was switched. Ask for less: fewer names, or shorter times.",
        ) from problem


def off() -> Control:
    """The request that switches everything off."""
    return Control(id=secrets.token_hex(8))


def _numbers(option: str, text: str | None) -> str:
    numbers = "".join((text or "").split())
    try:
        if text is not None:
            Calls(numbers)
    except ValueError as error:
        raise RewriterError(
            "bad-calls",
            f"{option} {text!r}: {error}",
            hint="Write numbers and ranges of them, such as 0,3-5 or 100-.",
        ) from error
    return numbers


def _milliseconds(text: str) -> int:
    match = _SPAN.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise RewriterError(
            "bad-number",
            f"--for is {text!r}",
            hint="Expected a time such as 500ms, 30s, 10m or 2h.",
        )
    return int(float(match[1]) * _UNITS[match[2]])


def write(path: Path, control: Control) -> None:
    """Replace the file atomically; only its owner can read and write it."""
    _require_control(path)
    folder = Path(f"{path}.d")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(control.text())
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


def _require_control(path: Path) -> None:
    """Refuse to overwrite another file."""
    try:
        runtime.read(os.fspath(path))
    except ControlError as problem:
        if not os.path.lexists(path):
            return
        raise _bad(path, problem) from problem


def _bad(path: Path, problem: ControlError) -> RewriterError:
    return RewriterError(
        "bad-control",
        f"{path}: {problem}",
        hint="Programs keep their current probes. Remove the file, and switch again.",
    )


def read(path: Path) -> ControlState:
    """The request in the file, and the state of the wrappers."""
    try:
        if path.exists() and not path.is_file():
            raise ControlError("it is no file")
        with path.open("rb") as file:
            control = parse(file.read(runtime.LARGEST + 1))
    except FileNotFoundError:
        control = None
    except ControlError as problem:
        raise _bad(path, problem) from problem
    except OSError as error:
        raise _bad(path, ControlError(error.strerror)) from error
    return ControlState(control, tuple(_wrappers(path, control)))


def _wrappers(path: Path, control: Control | None) -> Iterator[WrapperState]:
    host = socket.gethostname()
    for file in sorted(Path(f"{path}.d").glob("*.json")):
        try:
            facts = json_text.parse_object(file.read_bytes())
            if facts["format"] != STATUS:
                continue
            found = WrapperState(
                host=str(facts["host"]),
                pid=int(facts["pid"]),
                rank=int(facts["rank"]),
                wrapper=str(facts["wrapper"]),
                on=tuple(map(str, facts["on"])),
                recorded=int(facts["recorded"]),
                is_current=control is not None and facts["id"] == control.id,
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # incomplete, or not ours
        if found.host == host and not os.path.exists(f"/proc/{found.pid}"):
            with contextlib.suppress(OSError):  # another command may remove it at the same time
                file.unlink(missing_ok=True)
        else:
            yield found


def rings(target: str) -> tuple[tuple[int, Path], ...]:
    """The rings that processes record into, with process IDs. `target` is a process ID, or the path
    of a control file for all processes that use it."""
    is_process = target.isascii() and target.isdecimal() and not os.path.exists(target)
    if is_process:
        pids = [int(target)] if len(target) < 10 else []
    else:
        path = Path(target).absolute()
        host = socket.gethostname()
        pids = sorted({one.pid for one in read(path).wrappers if one.host == host})
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
    for one in state.wrappers:
        state_text = ", ".join(one.on) if one.on else "off"
        later = "" if one.is_current else ", not this request yet"
        yield (
            f"  {one.host} process {one.pid} rank {one.rank}  {one.wrapper}: {state_text}, "
            f"{counted(one.recorded, 'call')} recorded{later}"
        )
    if control is not None and not state.wrappers:
        yield "  no call of a program has seen it yet"


def _limits(control: Control) -> str:
    parts = []
    if control.kernels:
        parts.append(f"kernels {', '.join(control.kernels)}")
    if control.launches:
        parts.append(f"launches {control.launches}")
    if control.ranks:
        parts.append(f"ranks {control.ranks}")
    if control.calls:
        parts.append(counted(control.calls, "call"))
    if control.every > 1:
        parts.append(f"one call in {control.every}")
    if control.until:
        left = (control.until - time.time() * 1000) / 1000
        parts.append(f"for {left:.1f} s more" if left > 0 else "its time is up")
    if control.dump:
        parts.append(f"into {control.dump}")
    if control.keep:
        parts.append(f"keeping {counted(control.keep, 'call')}")
    if control.max_bytes:
        parts.append(f"at most {control.max_bytes}")
    return "".join(f"; {part}" for part in parts)
