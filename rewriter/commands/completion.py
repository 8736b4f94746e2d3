"""`rewriter completion`: a script with which a shell completes commands, options and files."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from rewriter.commands._parser import Parser
from rewriter.core.errors import FAILED, OK, RewriterError
from rewriter.core.terminal import say_text

_SHELLS = ("bash", "zsh", "fish")
_FILES = ("A", "ARTIFACT", "B", "COMMAND", "DUMP_A", "DUMP_B", "OUT")  # and all with FILE or DUMP
_DIRECTORIES = ("DIR",)


def add(parser: Parser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=" or ".join(_SHELLS))
    parser.add_examples(
        (
            "bash: until the shell ends; to stay, put the line into ~/.bashrc",
            'eval "$(rewriter completion bash)"',
        ),
        (
            "zsh: into a directory of $fpath",
            "rewriter completion zsh > ~/.zfunc/_rewriter",
        ),
        (
            "fish",
            "rewriter completion fish > ~/.config/fish/completions/rewriter.fish",
        ),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands._top import parser

    try:
        shtab: Any = import_module("shtab")
    except ImportError as error:
        raise RewriterError(
            "no-shtab",
            "the package shtab, which writes scripts for shells, is not installed",
            hint="pip install shtab",
            code=FAILED,
        ) from error
    top = parser()
    _mark(top, shtab)
    say_text(shtab.complete(top, arguments.shell))
    return OK


def _mark(parser: Parser, shtab: Any) -> None:
    """Fill a parser and those below it, and say where file names are expected."""
    below = parser.subparsers()
    for action in parser.filled()._actions:
        if action.choices is not None:
            continue
        name = action.metavar if isinstance(action.metavar, str) else ""
        if name in _DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif name in _FILES or "FILE" in name or "DUMP" in name:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    for one in below.values():
        _mark(one, shtab)
