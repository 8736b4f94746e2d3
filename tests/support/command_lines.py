"""The commands, and what each is given by a command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import click

from rewriter.commands._click import Command, Group
from rewriter.commands._top import GROUP, run


def contexts(above: click.Context | None = None) -> Iterator[click.Context]:
    """Every command, and every action of one, in the context of its name."""
    above = above or click.Context(GROUP, info_name="rewriter")
    assert isinstance(above.command, Group)
    for name in above.command.summaries:
        command = above.command.load(name)
        ctx = click.Context(command, info_name=name, parent=above, **command.context_settings)
        yield ctx
        if isinstance(command, Group):
            yield from contexts(ctx)


def parsed(*words: str) -> Any:
    """What a command is given, which does not act."""
    with mock.patch.object(Command, "invoke", Command.arguments):
        return run(words)
