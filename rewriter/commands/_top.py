"""The whole command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

import click

from rewriter.commands import SUMMARIES
from rewriter.commands._click import Group
from rewriter.version import __version__

COMPLETE = "_REWRITER_COMPLETE"  # in the environment, if a shell asks what may follow


def _load(name: str) -> click.Command:
    loaded: click.Command = import_module(f"rewriter.commands.{name}").act
    return loaded


GROUP = Group("commands", SUMMARIES, _load)
GROUP.help = "Instrument what PyTorch Inductor already generated."
GROUP.more = """
`rewriter COMMAND --help` shows the options of a command, and examples.

exit codes: 0 done or same, 1 differs or a finding, 2 wrong input or request,
            3 the toolchain or this program failed, 130 interrupted
"""
GROUP.gone = {
    "live": "Write: rewriter run --dormant -- COMMAND",
    "attach": "Start the program with `rewriter run --dormant -- COMMAND`; then write: rewriter "
    "control PID set print --calls 3",
}
click.version_option(__version__, message="inductor-rewriter %(version)s")(GROUP)


def run(words: Sequence[str]) -> int:
    """Run one command line, and return its exit code."""
    if asked := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(GROUP, {}, "rewriter", COMPLETE, asked)
    if words[:1] == ["help"]:  # as in git: `rewriter help run` is `rewriter run --help`
        words = [*words[1:], "--help"]
    try:
        with GROUP.make_context("rewriter", list(words), obj=tuple(words)) as ctx:
            code: int = GROUP.invoke(ctx)
            return code
    except click.exceptions.Exit as end:
        return end.exit_code
