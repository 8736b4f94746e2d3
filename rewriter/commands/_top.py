"""The parser of the whole command line."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import cache

from rewriter import commands
from rewriter.commands._parser import Parser
from rewriter.version import __version__


def parser() -> Parser:
    """The parser of the whole command line. Options of a command are added on demand."""
    top = Parser(
        prog="rewriter",
        description="Instrument what PyTorch Inductor already generated.",
        epilog="`rewriter COMMAND --help` shows the options of a command, and examples.\n\n"
        "exit codes: 0 done or same, 1 differs or a finding, 2 wrong input or request,\n"
        "            3 the toolchain or this program failed, 130 interrupted",
    )
    top.add_argument("--version", action="version", version=f"inductor-rewriter {__version__}")
    commands.add_to(top)
    return top


@cache  # some callers run many commands in one process
def _parser() -> Parser:
    return parser()


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, and add the line itself; `act` of the result runs the command."""
    arguments = _parser().parse_args(words)
    arguments.words = tuple(words)
    arguments.command_line = shlex.join(["rewriter", *words])
    return arguments
