"""Runs a program of the user's, and waits for it, whatever happens to this one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.processes import Process, Stream, supervise
from rewriter.core.signals import Signals
from rewriter.execution.standard_input import Feed, StandardInput

_GRACE = 10.0  # seconds that the program has for its own cleaning up


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
    sys.stdout.flush()
    sys.stderr.flush()
    with stdin.feed() as feed:
        try:
            process = Process.start(
                program,
                environment,
                # At a terminal, it stays in the group that Ctrl-C goes to and that may read there.
                group="shared" if sys.stdin is not None and sys.stdin.isatty() else "group",
                # If this command is killed, nobody waits for it or restores its wrappers.
                dies_with_parent=True,
                stdin=feed.descriptor,
                stdout=sys.stderr if quiet else None,
            )
        except OSError as error:
            raise RewriterError(
                "no-program",
                f"cannot start {program[0]}: {error.strerror}",
                hint="Check that it runs without `rewriter`: a script needs a first line with #!.",
            ) from error
        feed.start()
        ended = supervise(
            process,
            signals,
            timeout=timeout,
            grace=_GRACE,
            on_interrupt=lambda: tell(
                f"interrupted: the program has {_GRACE:g} s to end, or until the next Ctrl-C"
            ),
        )
    if ended.timed_out:
        return replace(ended, message=f"stopped at the time limit of {timeout:g} s")
    return ended


def run_killable(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout: float | None = None,
    stdin: StandardInput | None = None,
    stdout: Stream = None,
    stderr: Stream = None,
    on_poll: Callable[[], None] | None = None,
) -> ExitStatus:
    """Run a program that has nothing to clean up, in a session of its own: at most `timeout`
    seconds, then it is killed with all that it started, as it is if this process is told to end.

    `on_poll` is called ten times a second meanwhile. It has the standard input of this process, or
    else what `stdin` gives. Raises `OSError` where it cannot be started.
    """
    with Signals() as signals, stdin.feed() if stdin else nullcontext(Feed(None)) as feed:
        process = Process.start(
            command, environment, stdin=feed.descriptor, stdout=stdout, stderr=stderr
        )
        feed.start()
        ended = supervise(process, signals, timeout=timeout, on_poll=on_poll)
    if ended.interrupted:
        return ExitStatus(None, interrupted=ended.interrupted)
    if ended.timed_out:
        return replace(ended, message=f"still running after {timeout:g} s")
    return ended
