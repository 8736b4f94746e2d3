"""The command line: finds the commands, reads the arguments, turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import pkgutil
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from rewriter import commands
from rewriter.commands._common import message
from rewriter.errors import FAILED, OK, RewriterError
from rewriter.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1, 2 or 3, as the README explains them."""
    argv = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse_args(argv)
    arguments.command_line = shlex.join(["rewriter", *argv])
    try:
        code: int = arguments.act(arguments)
        sys.stdout.flush()
        return code
    except RewriterError as error:
        message(f"rewriter: error[{error.slug}]: {error}")
        return error.code
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; what was found is as it is.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(getattr(arguments, "found", OK))
    except KeyboardInterrupt:
        print("rewriter: interrupted", file=sys.stderr)
        return FAILED
    except (OSError, MemoryError) as error:
        print(f"rewriter: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except Exception:
        # A defect of this program: not a finding, which a plain traceback's exit code would say.
        traceback.print_exc()
        print("rewriter: this is a defect of rewriter itself; please report it", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each file in `rewriter/commands/` adds its command."""
    top = argparse.ArgumentParser(
        prog="rewriter",
        description="Instrument what PyTorch Inductor already generated.",
        epilog="Exit codes: 0 done or same, 1 differs or a finding, 2 wrong input or request, "
        "3 the toolchain or this program failed.",
    )
    top.add_argument("--version", action="version", version=f"inductor-rewriter {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    found = [
        import_module(f"{commands.__name__}.{module.name}")
        for module in pkgutil.iter_modules(commands.__path__)
        if not module.name.startswith("_")
    ]
    for command in sorted(found, key=lambda command: command.ORDER):
        command.add(subparsers)
    return top


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
