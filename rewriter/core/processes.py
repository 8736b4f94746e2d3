"""Starts processes, waits for them, and ends them with all processes that they started.

Every process that this package may have to end is started here: the user's programs, the host that
runs a wrapper, compilers, and the process that loads a package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from rewriter.core.exit_status import ExitStatus
from rewriter.core.signals import Signals

# `session`: the process has its own session, and no terminal. `group`: its own group in this
# session; before Python 3.11 also its own session, as code that runs between fork and exec may wait
# for a thread that the child does not have. `shared`: the group of this process, which gets Ctrl-C
# from a terminal and may read from it.
Group = Literal["session", "group", "shared"]
Stream = IO[str] | IO[bytes] | int | None

_POLL = 0.1  # seconds


@dataclass(frozen=True, eq=False)
class Process:
    """A process that was started; signals are sent to its whole group, unless that is shared."""

    popen: subprocess.Popen[str]
    group: Group

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        group: Group = "session",
        folder: Path | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Process:
        """Start a command. Raises `OSError` if it cannot be started."""
        options: dict[str, Any] = {"start_new_session": group != "shared"}
        if group == "group" and sys.version_info >= (3, 11):
            options = {"process_group": 0}
        popen = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            **options,
        )
        return cls(popen, group)

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait at most that long. Returns the exit code, negative for a signal, or `None`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(seconds)
        return None

    def communicate(self, text: str | None = None) -> tuple[int, str, str]:
        """Write to its standard input, and wait. Returns its exit code, and its two outputs."""
        out, err = self.popen.communicate(text)
        return self.popen.returncode, out or "", err or ""

    def send(self, number: int) -> None:
        """Send a signal. Does nothing if all processes have ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.group == "shared":
                os.kill(self.popen.pid, number)
            else:
                os.killpg(self.popen.pid, number)

    def kill(self) -> None:
        """Kill it, and the processes below it, which may be in groups of their own."""
        below = _below(self.popen.pid)
        self.send(signal.SIGKILL)
        _kill(below)


def supervise(
    process: Process,
    signals: Signals,
    *,
    timeout: float | None = None,
    grace: float = 0.0,
    on_poll: Callable[[], None] | None = None,
    on_interrupt: Callable[[], None] | None = None,
) -> ExitStatus:
    """Wait until a process ends. Returns how it ended.

    After `timeout` seconds it gets SIGTERM; signals that this process receives are passed on to it.
    It is killed `grace` seconds later, or at a second signal; with no `grace`, at once. `on_poll`
    is called ten times a second while waiting, `on_interrupt` at the first signal.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    timed_out = killed = False
    below: dict[int, str] = {}  # the processes below it, when it was asked to end
    handed_on = 0
    try:
        while (code := process.wait(_until(deadline, killed=killed))) is None:
            for number in signals.received[handed_on:]:
                handed_on += 1
                below = below or _below(process.popen.pid)
                # The terminal sent Ctrl-C to the whole group.
                if grace and (process.group != "shared" or number != signal.SIGINT):
                    process.send(number)
                if handed_on == 1 and on_interrupt:
                    on_interrupt()
                deadline = time.monotonic() + (grace if handed_on == 1 else 0)
            if deadline is not None and time.monotonic() >= deadline:
                if not handed_on and not timed_out:
                    timed_out = True
                    below = _below(process.popen.pid)
                    process.send(signal.SIGTERM if grace else signal.SIGKILL)
                    deadline = time.monotonic() + grace
                else:
                    process.kill()
                    killed = True
            if on_poll:
                on_poll()
    finally:
        if process.is_running:
            process.kill()
            process.popen.wait()
    if process.group != "shared" and (timed_out or handed_on):
        process.kill()
        _kill(below)  # what it started, and left running
    if handed_on:
        return replace(ExitStatus.of(code), interrupted=signals.received[0])
    return ExitStatus(None, timed_out=True) if timed_out else ExitStatus.of(code)


def _until(deadline: float | None, *, killed: bool) -> float:
    """How many seconds to wait before the next check."""
    if deadline is None or killed:
        return _POLL
    return max(0.0, min(_POLL, deadline - time.monotonic()))


def _below(number: int) -> dict[int, str]:
    """The processes that a process started, and those that these started, each with the time of its
    start; only known on Linux."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):  # it, or one of its threads, may end meanwhile
        for task in Path("/proc", str(number), "task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found |= {child: _started(child), **_below(child)}
    return found


def _started(number: int) -> str:
    """When a process was started, in ticks of the system's clock; empty if there is none."""
    try:
        return Path("/proc", str(number), "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _kill(processes: Mapping[int, str]) -> None:
    """Kill processes, unless their numbers were given to others meanwhile."""
    for number, started in processes.items():
        if started and _started(number) == started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
