"""Starts processes, waits for them, and ends them with all processes that they started.

Every process that this package may have to end is started here: the user's programs, the host that
runs a wrapper, compilers, and the process that loads a package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from rewriter.core.exit_status import ExitStatus
from rewriter.core.signals import Signals

# `session`: the process has its own session, and no terminal. `group`: its own group in this
# session. `shared`: the group of this process, which gets Ctrl-C from a terminal and may read from
# it.
Group = Literal["session", "group", "shared"]
Stream = IO[str] | IO[bytes] | int | None

_POLL = 0.1  # seconds
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


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
        dies_with_parent: bool = False,
        folder: Path | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Process:
        """Start a command. With `dies_with_parent` it gets SIGTERM if this process is killed.

        Raises `OSError` if it cannot be started.
        """
        options: dict[str, Any] = {"start_new_session": group == "session"}
        if group == "group" or dies_with_parent:
            options["preexec_fn"] = _prepare(
                grouped=group == "group", dies_with_parent=dies_with_parent
            )
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
        self.send(signal.SIGKILL)


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
    handed_on = 0
    try:
        while (code := process.wait(_until(deadline, killed=killed))) is None:
            for number in signals.received[handed_on:]:
                handed_on += 1
                # The terminal sent Ctrl-C to the whole group.
                if grace and (process.group != "shared" or number != signal.SIGINT):
                    process.send(number)
                if handed_on == 1 and on_interrupt:
                    on_interrupt()
                deadline = time.monotonic() + (grace if handed_on == 1 else 0)
            if deadline is not None and time.monotonic() >= deadline:
                if not handed_on and not timed_out:
                    timed_out = True
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
        process.kill()  # processes that it started and left running
    if handed_on:
        return replace(ExitStatus.of(code), interrupted=signals.received[0])
    return ExitStatus(None, timed_out=True) if timed_out else ExitStatus.of(code)


def _until(deadline: float | None, *, killed: bool) -> float:
    """How many seconds to wait before the next check."""
    if deadline is None or killed:
        return _POLL
    return max(0.0, min(_POLL, deadline - time.monotonic()))


def _prepare(*, grouped: bool, dies_with_parent: bool) -> Callable[[], None]:
    """A function that the new process calls before it becomes the program."""
    parent = os.getpid()
    # Only on Linux.
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if dies_with_parent else None

    def prepare() -> None:
        if grouped:
            os.setpgid(0, 0)
        if prctl is not None:
            # SIGTERM, so that launchers such as torchrun end their workers.
            prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))
            if os.getppid() != parent:
                os._exit(1)

    return prepare
