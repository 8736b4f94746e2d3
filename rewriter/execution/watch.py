"""Runs a program, and ends it with all that it started: at a time limit, or when told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import IO

from rewriter.execution.exit_status import ExitStatus
from rewriter.execution.signals import Signals
from rewriter.execution.standard_input import Feed, StandardInput

_POLL = 0.1  # seconds


def watch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout: float | None = None,
    stdin: StandardInput | None = None,
    stdout: IO[str] | int | None = None,
    stderr: IO[str] | int | None = None,
    look: Callable[[], None] | None = None,
) -> ExitStatus:
    """Run a program and wait for it, at most `timeout` seconds: then it is killed with all that it
    started, as it is if this process is told to end. `look` is called ten times a second meanwhile.
    It has the standard input of this process, or else what it is given of that.
    """
    with Signals() as signals, stdin.feed() if stdin else nullcontext(Feed(None)) as feed:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=feed.descriptor,
            stdout=stdout,
            stderr=stderr,
            # A group of its own, to be ended with all that it starts.
            start_new_session=True,
        )
        feed.start()
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not _is_over(deadline):
                with suppress(subprocess.TimeoutExpired):
                    left = _POLL if deadline is None else deadline - time.monotonic()
                    return ExitStatus.of(process.wait(max(0.0, min(_POLL, left))))
                if signals.received:
                    return ExitStatus(None, interrupted=signals.received[0])
                if look:
                    look()
            return ExitStatus(None, timed_out=True, message=f"still running after {timeout:g} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
