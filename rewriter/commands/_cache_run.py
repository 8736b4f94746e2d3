"""The text and the JSON of `rewriter cache run`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter.cache.run import CacheRun, Request
from rewriter.commands._cache import count, edited, listed, placed_json, warn_about_all
from rewriter.commands._common import from_here, verdict_lines
from rewriter.core.errors import RewriterError
from rewriter.core.labels import short
from rewriter.core.terminal import Line, level_style, message, table
from rewriter.core.types import Json
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.conclusion import (
    OPTIONS,
    WRAPPER,
    Conclusion,
    next_command,
    write_conclusion,
)
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump import timing
from rewriter.dump.summary import Finding
from rewriter.dump.timing import Timed
from rewriter.dump.where import where

_SHOWN = 30  # launches in a table of times


@dataclass(frozen=True)
class Read:
    """What is read from a dump for the report: where a program that did not end well was, and how
    long launches took."""

    verdicts: tuple[Verdict, ...] = ()
    times: tuple[Timed, ...] = ()
    trace: Path | None = None


def read(request: Request, ran: CacheRun) -> Read:
    """Read the dump of a run, and write its trace if launches were timed.

    What cannot be read is said: the rest of the report does not depend on it.
    """
    if ran.dump is None:
        return Read()
    try:
        write_conclusion(ran.dump, Conclusion(ran.ended, request.blocking, _template(request)))
        verdicts: tuple[Verdict, ...] = ()
        if ran.ended.code != 0:
            verdicts = examine(ran.dump, ran.ended, blocking=request.blocking)
        verdicts += nonfinite.examine(ran.dump, where=where)
        times = timing.table(ran.dump) if "time" in request.selection.probes else ()
        return Read(verdicts, times, timing.write_trace(ran.dump) if times else None)
    except RewriterError as error:
        message(f"warning: {error.message}")
        return Read()


def show(request: Request, ran: CacheRun, found: Read) -> None:
    """The report, on standard error: standard output is the program's."""
    warn_about_all(ran.placed, ran.refused, ran.broken)
    _warn_of_unprobed(ran)
    for cleared in ran.cleared:
        if cleared.left:
            message("warning: " + edited(cleared.left))
    if ran.placed:
        message(*_calls(ran))
    if found.times:
        message(*_times(found.times))
    has_nan = any(verdict.ended is None for verdict in found.verdicts)
    for finding in ran.summary.findings:
        # Of NaN there is a verdict, and of the infinities that they come from.
        if finding.kind == "unexpected" or not has_nan:
            message(_finding(finding), style=level_style("error"))
    if ran.interrupted:
        message("interrupted; the cache is as it was")
    elif ran.ended.code != 0:
        message(f"{shlex.join(request.program)}: {ran.ended}")
        if ran.placed and not any(verdict.ended for verdict in found.verdicts):
            message("no launch was recorded as running when it ended")
    for verdict in found.verdicts:
        message(
            *verdict_lines(verdict, next_command(_template(request), verdict, request.selection))
        )
    if ran.dump is not None:
        dump = from_here(ran.dump)
        message(f"dump: {dump}; see it with: rewriter report {shlex.quote(str(dump))}")
    if found.trace is not None:
        message(f"trace for Perfetto or chrome://tracing: {from_here(found.trace)}")


def as_json(request: Request, ran: CacheRun, found: Read) -> Json:
    return {
        "directory": str(request.directory),
        "program": list(request.program),
        "command": request.command,
        "ended": ran.ended.json(),
        "interrupted": ran.interrupted,
        "runs": ran.runs,
        "wrappers": [
            {
                "wrapper": one.slot.name,
                "graph": one.slot.wrapper.graph,
                "launches": len(one.result.plan.probed),
                "calls": ran.summary.calls.get(one.slot.path.name, 0),
            }
            for one in ran.placed
        ],
        "refused": placed_json(request.directory, (), ran.refused)["refused"],
        "unprobed": [{"wrapper": one.slot.name, "frozen": one.frozen} for one in ran.unprobed],
        "launches": ran.summary.launches,
        "findings": [
            {"kind": x.kind, "artifact": x.artifact, "run": x.run, "event": x.row}
            for x in ran.summary.findings
        ],
        "left": [name for cleared in ran.cleared for name in cleared.left],
        "dump": None if ran.dump is None else str(ran.dump),
        "verdicts": [verdict.json() for verdict in found.verdicts],
        "next": next_command(_template(request), found.verdicts[0], request.selection)
        if found.verdicts
        else "",
        "times": [timed.json() for timed in found.times],
        "trace": None if found.trace is None else str(found.trace),
    }


def _calls(ran: CacheRun) -> list[Line]:
    """How often each wrapper was called; those that were not only in sum."""
    calls = {one.slot: ran.summary.calls.get(one.slot.path.name, 0) for one in ran.placed}
    asked = ran.placed[0].result.selection if ran.placed else None
    chosen = asked is not None and bool(asked.calls or asked.last)
    rows = [["wrapper", "graph", "launches", "calls recorded" if chosen else "calls"]]
    rows += [
        [one.slot.short, one.slot.wrapper.graph, str(len(one.result.plan.probed)), str(number)]
        for one in ran.placed
        if (number := calls[one.slot])
    ]
    lines: list[Line] = [*table(rows, stream="stderr")] if len(rows) > 1 else []
    idle = [slot.short for slot, number in calls.items() if not number]
    if idle:
        never = "no call among those chosen" if chosen else "never called"
        lines.append(f"{never}: {count(len(idle), 'wrapper')}: {listed(idle)}")
    if idle and len(idle) == len(calls) and ran.ended.code == 0 and not chosen:
        lines.append(
            "a program that sets a cache directory of its own, or force_disable_caches, reads none "
            "of these"
        )
    lines.append(f"{count(ran.summary.launches, 'launch', 'es')} recorded")
    return lines


def _warn_of_unprobed(ran: CacheRun) -> None:
    frozen = [one.slot.short for one in ran.unprobed if one.frozen]
    new = [one.slot.short for one in ran.unprobed if not one.frozen]
    if frozen:
        message(
            f"warning: not probed: {listed(frozen)}: the weights are frozen, and their addresses "
            "are in the text, so that each process makes a wrapper of its own. `rewriter run FILE "
            "--constants` runs one alone."
        )
    if new:
        message(
            f"warning: not probed: {listed(new)}: the program compiled it only in its last run. "
            "Run the command again."
        )


def _times(times: Sequence[Timed]) -> list[Line]:
    """The launches that took longest."""
    shown = tuple(times[:_SHOWN])
    rows = timing.lines(shown, name=short)
    lines: list[Line] = [*table(rows, stream="stderr")]
    rest = times[_SHOWN:]
    if rest:
        share = sum(timed.share for timed in rest)
        lines.append(f"{count(len(rest), 'launch', 'es')} more, {share:.1%} of the time")
    return lines


def _finding(finding: Finding) -> str:
    row = finding.row
    wrapper = short(finding.artifact)
    if finding.kind == "unexpected":
        text = f"unexpected input {row.get('arg', '')}: {row['unexpected']}"
        return f"{text}, {finding.run}, {wrapper}"
    what = {"nan": "NaN", "inf": "infinite value"}[finding.kind]
    where = f"{row.get('arg', 'a value')} ({row.get('role', '')})"
    at = f"{row['phase']} #{row['launch']} {row['kernel']}" if "launch" in row else "of the inputs"
    count = row.get(finding.kind)
    return f"first {what}: {where} {at} ({count} elements), {finding.run}, {wrapper}"


def _template(request: Request) -> str:
    """The command that would tell more, for any wrapper and probes."""
    words = ["rewriter", "run"]
    if request.pinned:
        words += ["--dir", str(request.directory)]
    words += ["--wrappers", f"{WRAPPER}*", OPTIONS]
    words += ["--blocking"] * request.blocking
    if request.timeout is not None:
        words += ["--timeout", f"{request.timeout:g}"]
    return shlex.join([*words, "--", *request.program])
