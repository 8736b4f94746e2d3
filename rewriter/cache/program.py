"""Runs a program of the user's, and waits for it, whatever happens to this one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rewriter.core.errors import RewriterError
from rewriter.execution.exit_status import ExitStatus
from rewriter.execution.signals import Signals
from rewriter.execution.standard_input import Feed, StandardInput

_GRACE = 10.0  # seconds that the program has for its own cleaning up
_POLL = 0.1
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def require(program: Sequence[str]) -> None:
    """Raise `RewriterError` where a program cannot be found: before anything is done for it."""
    if not program:
        raise RewriterError(
            "no-program",
            "no program was named",
            hint="Put it behind --, as you would type it: -- python train.py.",
        )
    if shutil.which(program[0]) is None:
        hint = "Check the name and PATH."
        if program[0].endswith(".py"):
            hint = f"Write `python {program[0]}`."
        raise RewriterError("no-program", f"there is no program {program[0]!r}", hint=hint)


def run(
    program: Sequence[str],
    environment: Mapping[str, str],
    signals: Signals,
    tell: Callable[[str], None],
    stdin: StandardInput,
    *,
    timeout: float | None = None,
    quiet: bool = False,
) -> ExitStatus:
    """Run a program to its end. A signal is handed on to it; then, and after `timeout` seconds, it
    has a while to end before it is killed, which `tell` is told. `quiet` sends its standard output
    to standard error; `stdin` is what it reads.
    """
    with stdin.feed() as feed:
        return _run(program, environment, signals, tell, feed, timeout=timeout, quiet=quiet)


def _run(
    program: Sequence[str],
    environment: Mapping[str, str],
    signals: Signals,
    tell: Callable[[str], None],
    feed: Feed,
    *,
    timeout: float | None,
    quiet: bool,
) -> ExitStatus:
    sys.stdout.flush()
    sys.stderr.flush()
    # At a terminal, the program stays in the group that Ctrl-C goes to and that may read from it.
    grouped = not (sys.stdin is not None and sys.stdin.isatty())
    try:
        process = subprocess.Popen(
            program,
            env=dict(environment),
            stdin=feed.descriptor,
            stdout=sys.stderr if quiet else None,
            preexec_fn=_prepare(grouped),
        )
    except OSError as error:
        raise RewriterError(
            "no-program",
            f"cannot start {program[0]}: {error.strerror}",
            hint="Check that it runs without `rewriter`: a script needs a first line with #!.",
        ) from error

    feed.start()

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if grouped else os.kill)(process.pid, number)

    deadline = None if timeout is None else time.monotonic() + timeout
    timed_out = False
    handed_on = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL)
            break
        for number in signals.received[handed_on:]:
            handed_on += 1
            if grouped or number != signal.SIGINT:  # which the terminal has sent already
                send(number)
            deadline = time.monotonic() + (_GRACE if handed_on == 1 else 0)
            if handed_on == 1:
                tell(f"interrupted: the program has {_GRACE:g} s to end, or until the next Ctrl-C")
        if deadline is not None and time.monotonic() >= deadline:
            if not handed_on and not timed_out:
                timed_out = True
                send(signal.SIGTERM)
                deadline = time.monotonic() + _GRACE
            else:
                send(signal.SIGKILL)
    if grouped and (timed_out or handed_on):
        send(signal.SIGKILL)  # what it started and left
    ended = ExitStatus.of(process.returncode)
    if handed_on:
        return replace(ended, interrupted=signals.received[0])
    if timed_out:
        return ExitStatus(
            None, timed_out=True, message=f"stopped at the time limit of {timeout:g} s"
        )
    return ended


def _prepare(grouped: bool) -> Callable[[], None]:
    """What the new process does before it becomes the program."""
    parent = os.getpid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it

    def prepare() -> None:
        if grouped:
            os.setpgid(0, 0)
        if prctl is not None:
            # If this command is killed, nobody waits for the program or restores its wrappers.
            # SIGTERM, so that launchers such as torchrun end their workers.
            prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))
            if os.getppid() != parent:
                os._exit(1)

    return prepare
