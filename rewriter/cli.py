"""The command line: runs a command, and turns errors into exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from rewriter.commands._top import run
from rewriter.core.errors import FAILED, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import message


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1, 2, 3 or 130 (docs/reference/output.md)."""
    code = OK
    try:
        if os.name == "nt":
            raise RewriterError(
                "no-platform",
                "Windows is not supported: files are locked and programs started by what POSIX has",
                hint="Use it in WSL.",
            )
        code = run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except RewriterError as error:
        _show(error)
        return error.code
    except BrokenPipeError as error:
        # The pipe was closed (`| head`): no error, so the exit code says what was found.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(getattr(error, "exit_code", code))
    except KeyboardInterrupt as stop:
        message(": ".join(["rewriter: interrupted", *map(str, stop.args)]))
        return INTERRUPTED
    except (OSError, MemoryError) as error:
        message(f"rewriter: {type(error).__name__}: {error}")
        return FAILED
    except Exception:
        # A defect of this program: not a finding, which a plain traceback's exit code would say.
        import traceback

        message(*traceback.format_exc().rstrip().split("\n"))
        message("rewriter: this is a defect of rewriter itself; please report it")
        return FAILED


def _show(error: RewriterError) -> None:
    """Print an error; its further lines are indented, so that none passes for a message."""
    first, *rest = f"{error.message}\n{error.hint}".rstrip().split("\n")
    message(
        f"rewriter: error[{error.slug}]: {first}",
        *(line if line.startswith("  ") else f"  {line}" for line in rest),
    )


def script() -> None:
    """The entry point of the installed `rewriter`.

    Whatever the terminal's encoding, names and messages come out; a closed or full standard output
    is an error of the environment, exit code 3.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
        else:
            stream.reconfigure(errors="backslashreplace")
    # CI cancels a job, a terminal goes away: what is half done is cleaned up then as on Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, signal.default_int_handler)
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # Python would report it once more at exit, and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    raise SystemExit(code)
