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
    """The whole command line. A command's options are added once they are needed."""
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


@cache  # who runs many commands in one process makes it once
def _parser() -> Parser:
    return parser()


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What a command line asks for, and the line itself; `act` of the result does it."""
    arguments = _parser().parse_args(words)
    arguments.words = tuple(words)
    arguments.command_line = shlex.join(["rewriter", *words])
    return arguments
