"""`rewriter triage DUMP`: where the program that left a dump ended."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rewriter.commands._documents.triage import ArtifactTriageDocument
from rewriter.commands._output import emit, verdict_lines
from rewriter.commands._selection import refuse_idle
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import say
from rewriter.diagnosis import triage
from rewriter.diagnosis.conclusion import next_command, read_conclusion, without_conclusion
from rewriter.diagnosis.documents import verdict_entry
from rewriter.dump.document_files import MANIFEST
from rewriter.dump.reading import open_dump


def is_dump(path: str) -> bool:
    """Whether a path is a dump."""
    return (Path(path) / MANIFEST).is_file()


def act(arguments: argparse.Namespace, path: str) -> int:
    given = {
        "--args": arguments.args,
        "--dump": arguments.dump,
        "--timeout": arguments.timeout,
        "--overwrite": arguments.overwrite,
    }
    refuse_idle(given, "a dump is only read")
    opened = open_dump(path)
    known = read_conclusion(opened.home)
    conclusion = known or without_conclusion(opened.home)
    verdicts = triage.of_dump(opened, conclusion.ended, blocking=conclusion.blocking)
    if conclusion.ended.code == 0:
        verdicts = ()
    following = [next_command(conclusion.again, verdict) for verdict in verdicts]
    if arguments.json:
        entries = tuple(map(verdict_entry, verdicts))
        emit(
            ArtifactTriageDocument(
                artifact=path,
                steps=(),
                verdict=entries[0] if entries else None,
                verdicts=entries,
                next=following[0] if following else "",
                unexpected=(),
                dump=path,
            )
        )
    else:
        for verdict, command in zip(verdicts, following, strict=True):
            say(*verdict_lines(verdict, command))
        if not verdicts:
            is_well = conclusion.ended.code == 0
            how = "nothing crashed" if is_well else "the dump names no launch"
            say(*filter(None, [f"verdict: {how}: {conclusion.ended}", opened.caveat]))
        if trigger := opened.manifest.trigger:
            say(f"  written because of {trigger}; see it with: rewriter report {shlex.quote(path)}")
    if known is not None:
        return OK if known.ended.code == 0 else DIFFERS
    # A dump that ends between two calls, or of a running program, does not indicate a crash.
    has_crash = any(verdict.state != "over" for verdict in verdicts)
    return DIFFERS if has_crash and not conclusion.ended.running else OK
