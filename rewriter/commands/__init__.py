"""The commands. Each is a module of its name here, which is imported when it is needed.

Their names, and what `rewriter --help` says of them, stand here, so that the help of one command,
or of all, imports no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewriter.commands._parser import Parser

SUMMARIES: Mapping[str, str] = {
    "diagnose": "find out what is wrong: a crash, a NaN, wrong numbers",
    "list": "list the kernel launches of an artifact",
    "instrument": "put probes around kernel launches",
    "strip": "take the probes out again",
    "run": "run a program, a wrapper or a package, with or without probes",
    "control": "switch dormant probes of running programs on and off",
    "cache": "show the wrappers of Inductor's cache, and restore those that have probes",
    "triage": "find the launch that crashes or hangs, its arguments, and the next step",
    "verify": "check that each launch computes what its graph says",
    "sanitize": "find memory faults: out of bounds, unwritten, released, races",
    "report": "show a dump as one self-contained HTML file",
    "compare": "compare two dumps and name the first launch that went wrong",
    "repro": "cut a recorded launch out as a script that runs it alone",
    "diff": "compare two artifacts, launch by launch",
    "doctor": "check what this machine can do, and whether it can run an artifact",
    "demo": "show the tool at work on a small model",
    "completion": "print a script for your shell that completes commands, options and files",
}


def add_to(parser: Parser) -> None:
    """Add every command to the parser of the whole command line."""
    choice = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in SUMMARIES.items():
        add_command(choice, name, summary, _filler(name))


def add_command(choice: object, name: str, summary: str, fill: Callable[[Parser], None]) -> None:
    """Add one command; `fill` adds its options on demand."""
    text = f"{summary[0].upper()}{summary[1:]}."
    choice.add_parser(name, help=summary, description=text, fill=fill)  # type: ignore[attr-defined]


def _filler(name: str) -> Callable[[Parser], None]:
    def fill(parser: Parser) -> None:
        import_module(f"{__name__}.{name}").add(parser)

    return fill
