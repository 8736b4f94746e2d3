"""`rewriter live`: start a program so that `rewriter attach` can put probes into it."""

from __future__ import annotations

import argparse
import os
import sys

from rewriter.commands._parser import Parser, behind_dashes
from rewriter.core.terminal import message
from rewriter.execution import program


def add(parser: Parser) -> None:
    parser.takes = "-- COMMAND"
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_examples(
        ("then, from another terminal: rewriter attach PID", "rewriter live -- python train.py"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.hook import search_path
    from rewriter.hook.startup.sitecustomize import LIVE

    command = behind_dashes(arguments)
    if command is None:
        from rewriter.commands._program import no_program

        raise no_program(arguments.words[1:], "live")
    program.require(command)
    path = search_path(os.environ)
    message(
        f"when the program has imported Inductor, attach to it: rewriter attach {os.getpid()}"
        " (its child processes have their own IDs)"
    )
    sys.stdout.flush()
    sys.stderr.flush()
    # The program takes the place of this process, and has its number.
    os.execvpe(command[0], list(command), {**os.environ, "PYTHONPATH": path, LIVE: "1"})
