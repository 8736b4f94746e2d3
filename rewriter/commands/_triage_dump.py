"""`rewriter triage DUMP`: where the program that left a dump ended."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rewriter.commands._documents.triage import ArtifactTriageDocument
from rewriter.commands._options import RunOptions, options_given, refuse_idle
from rewriter.commands._output import emit, from_here, verdict_lines
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import say
from rewriter.diagnosis import nonfinite, triage
from rewriter.diagnosis.verdict import Verdict
from rewriter.diagnosis.verdict_text import next_command
from rewriter.dump.reading import Dump, open_dump
from rewriter.execution.conclusion import Conclusion, read_conclusion, without_conclusion


def act(arguments: RunOptions, path: str) -> int:
    idle = options_given(arguments, "args", "dump", "timeout", "overwrite")
    refuse_idle(idle, "a dump is only read")
    opened = open_dump(path)
    known = read_conclusion(opened.home)
    conclusion = known or without_conclusion(opened.home)
    found = _verdicts(opened, conclusion)
    here = {run.name for run in opened.runs}
    verdicts = [verdict for verdict in found if verdict.run in here]
    commands = [next_command(conclusion.again, verdict) for verdict in verdicts]
    following = next(iter(commands), "")
    has_crash = any(verdict.state != "over" for verdict in verdicts)
    report = f"rewriter report {shlex.quote(path)}"
    number = () if has_crash else nonfinite.search(opened).verdicts
    if found and not verdicts:
        following = f"rewriter triage {shlex.quote(str(from_here(opened.home)))}"
    elif number and not following:
        following = report
    if arguments.json:
        emit(
            ArtifactTriageDocument(
                artifact=path,
                steps=(),
                verdicts=tuple(verdicts),
                next=following,
                unexpected=(),
                dump=path,
            )
        )
    else:
        for verdict, command in zip(verdicts, commands, strict=True):
            say(*verdict_lines(verdict, command))
        if found and not verdicts:
            say("verdict: the program did not end in this part of its dump", f"  next: {following}")
        elif not verdicts:
            is_well = conclusion.ended.code == 0
            how = "nothing crashed" if is_well else "the dump names no launch"
            say(*filter(None, [f"verdict: {how}: {conclusion.ended}", opened.caveat]))
        trigger = opened.manifest.trigger
        if trigger:
            say(f"  written because of {trigger}; see it with: {report}")
        elif number:
            say(f"  {number[0].headline}; see it with: {report}")
    if known is not None:
        return OK if known.ended.code == 0 else DIFFERS
    # A dump that ends between two calls, or of a running program, does not indicate a crash.
    return DIFFERS if has_crash and not conclusion.ended.running else OK


def _verdicts(opened: Dump, conclusion: Conclusion) -> Sequence[Verdict]:
    """Where the program ended: of a part of a dump, too, the whole of it shows that."""
    if conclusion.ended.code == 0:
        return ()
    is_part = opened.home in opened.path.absolute().parents
    whole = open_dump(opened.home) if is_part else opened
    return triage.examine(whole, conclusion.ended, blocking=conclusion.blocking)
