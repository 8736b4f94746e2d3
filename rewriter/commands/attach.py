"""`rewriter attach`: put probes into a program that runs, and take them out again."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from rewriter.commands._options import add_probe_options, refuse_idle, time_limit
from rewriter.commands._output import from_here, verdict_lines
from rewriter.commands._parser import Parser
from rewriter.commands._selection import selection
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.labels import short
from rewriter.core.terminal import message, table
from rewriter.core.text import counted
from rewriter.instrumentation.select import no_probes


def add(parser: Parser) -> None:
    parser.add_argument("pid", metavar="PID", help="the process ID of the program")
    add_probe_options(parser)
    parser.group("when it ends").add_argument(
        "--seconds",
        metavar="S",
        type=time_limit,
        help="take the probes out after this many seconds (default: after the calls of --first, or "
        "at Ctrl-C)",
    )
    output = parser.group("output")
    output.add_argument(
        "-d", "--dump", metavar="DUMP", help="directory to dump to (default: a new PID.dump)"
    )
    output.add_argument("--overwrite", action="store_true", help="replace an existing dump")
    output.add_argument(
        "--echo",
        action="store_true",
        help="also print in the program what probes print (default: only write the dump)",
    )
    parser.add_examples(
        ("statistics of the next three calls of each wrapper", "rewriter attach 4711 --first 3"),
        (
            "one kernel, for half a minute",
            "rewriter attach 4711 --kernels '*softmax*' --seconds 30",
        ),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.dump.directory import dump_directory
    from rewriter.loaded.client import attach
    from rewriter.loaded.request import Request

    pid = _number(arguments.pid)
    chosen = selection(arguments, default="print")
    if chosen is None:
        raise no_probes()
    refuse_idle({"--stop": chosen.stop}, "a program that runs is not ended by who looks at it")
    seconds = arguments.seconds or 0.0
    dump = dump_directory(Path(f"{pid}"), arguments.dump, overwrite=arguments.overwrite)
    calls = arguments.first or 0
    request = Request(
        directory=str(dump), selection=chosen, echo=arguments.echo, calls=calls, seconds=seconds
    )
    try:
        attached = attach(pid, request, message)
    finally:
        _remove_empty(dump)
    for note in attached.notes:
        message(f"note: {note}")
    if not dump.is_dir():
        message("nothing was recorded: no wrapper with a chosen launch was called")
        return INTERRUPTED if attached.interrupted else OK
    found = _tell(dump)
    if attached.interrupted:
        return INTERRUPTED
    return DIFFERS if found else OK


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10):
        raise RewriterError(
            "no-process",
            f"{text!r} is no process ID",
            hint="`rewriter live` prints the ID of the program that it starts; `ps` lists all.",
        )
    return int(text)


def _tell(dump: Path) -> bool:
    """Say what a dump shows; whether something is wrong."""
    from rewriter.diagnosis import nonfinite
    from rewriter.dump.summary import summarise

    summary = summarise(dump)
    rows = [["wrapper", "calls"], *([short(x), str(n)] for x, n in summary.calls.items())]
    message(*table(rows, stream="stderr"))
    message(f"{counted(summary.launches, 'launch')} recorded")
    for verdict in nonfinite.examine(dump, values=True):
        message(*verdict_lines(verdict, ""))
    shown = from_here(dump)
    message(f"dump: {shown}; see it with: rewriter report {shlex.quote(str(shown))}")
    return bool(summary.findings)


def _remove_empty(dump: Path) -> None:
    """Take away a directory that nothing was written to."""
    if not any(dump.iterdir()):
        os.rmdir(dump)
