"""Runs a program of the user and supervises it: signals, time limits, standard input."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.processes import Process, Stream, supervise
from rewriter.core.signals import Signals
from rewriter.execution.standard_error import StandardError
from rewriter.execution.standard_input import Feed, StandardInput

GRACE = 10.0  # seconds that the program has for its own cleaning up


def require(program: Sequence[str]) -> None:
    """Raise `RewriterError` if a program cannot be found."""
    script = next(iter(program[1:]), "-")
    is_python = bool(program) and Path(program[0]).name.startswith("python")
    is_script = is_python and script[:1] != "-" and script.endswith(".py")
    if not program:
        problem = "no program was named"
        hint = "Put it behind --, as you would type it: -- python train.py."
    elif shutil.which(program[0]) is None:
        problem, hint = f"there is no program {program[0]!r}", "Check the name and PATH."
        if program[0].endswith(".py"):
            hint = f"Write `python {program[0]}`."
    elif is_script and not Path(script).exists():
        problem = f"there is no file {script!r} for {program[0]} to run"
        hint = f"Check the name; the working directory is {Path.cwd()}."
    else:
        return
    raise RewriterError("no-program", problem, hint=hint)


def run(
    program: Sequence[str],
    environment: Mapping[str, str],
    signals: Signals,
    tell: Callable[[str], None],
    stdin: StandardInput | None = None,
    *,
    timeout: float | None = None,
    quiet: bool = False,
    hears: bool = False,
    shown: bool = True,
) -> ExitStatus:
    """Run a program to its end.

    Signals are passed on to it. After a signal, or after `timeout` seconds, it has a grace period
    before it is killed; on a signal, `tell` gets a message about that. `quiet` sends its standard
    output to standard error. Without `stdin`, the program has the standard input of this process.
    With `hears`, its standard error is searched for why it ended, and passed on if that is `shown`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    heard = StandardError(shown=shown) if hears else None
    with (
        stdin.feed() if stdin else nullcontext(Feed()) as feed,
        heard.reading() if heard else nullcontext(),
    ):
        try:
            process = Process.start(
                program,
                environment,
                # At a terminal, only our process group may read from it, and gets Ctrl-C.
                group="shared" if sys.stdin is not None and sys.stdin.isatty() else "group",
                stdin=feed.descriptor,
                stdout=sys.stderr if quiet else None,
                stderr=heard.descriptor if heard else None,
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
            grace=GRACE,
            on_interrupt=lambda: tell(
                f"interrupted: the program has {GRACE:g} s to end, or until the next Ctrl-C"
            ),
        )
    if ended.timed_out:
        return replace(ended, message=f"stopped at the time limit of {timeout:g} s")
    return heard.explained(ended) if heard else ended


def run_killable(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout: float | None = None,
    stdout: Stream = None,
    stderr: Stream = None,
    on_poll: Callable[[], None] | None = None,
) -> ExitStatus:
    """Run a program in its own session. After `timeout` seconds, or if this process is interrupted,
    it is killed with all processes that it started.

    `on_poll` is called ten times a second. Raises `OSError` if it cannot be started.
    """
    with Signals() as signals:
        process = Process.start(command, environment, stdout=stdout, stderr=stderr)
        ended = supervise(process, signals, timeout=timeout, on_poll=on_poll)
    if ended.interrupted:
        return ExitStatus(None, interrupted=ended.interrupted)
    if ended.timed_out:
        return replace(ended, message=f"still running after {timeout:g} s")
    return ended
