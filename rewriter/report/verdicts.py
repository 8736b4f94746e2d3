"""The verdicts of a dump, as the terminal showed them: of a crash, and of the first NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rewriter.diagnosis import triage
from rewriter.diagnosis.verdict import NonFiniteVerdict, Verdict
from rewriter.diagnosis.verdict_text import next_command
from rewriter.dump.document_files import was_stopped
from rewriter.dump.reading import Dump, RunDump
from rewriter.execution.conclusion import Conclusion, read_conclusion, without_conclusion
from rewriter.execution.dumped_wrappers import selection_of
from rewriter.report.types import FollowedVerdict, ReportedFinding

_ENDS = ("unfinished", "fault")  # findings that tell of a crash


def has_failed(dump: Dump, conclusion: Conclusion) -> bool:
    """Whether the program ended otherwise than with exit code 0, and not at a NaN (`--stop`)."""
    return conclusion.ended.code != 0 and not was_stopped(dump.path)


def of_dump(
    dump: Dump,
    runs: Sequence[RunDump],
    findings: Sequence[ReportedFinding],
    nonfinite: Sequence[NonFiniteVerdict],
) -> tuple[FollowedVerdict, ...]:
    """The verdicts of these runs, with those about values, each with the command that would tell
    more, empty for none."""
    conclusion = read_conclusion(dump.home)
    stopped = any(finding.kind in _ENDS for finding in findings)
    if conclusion is not None:
        stopped = has_failed(dump, conclusion)
    conclusion = conclusion or without_conclusion(dump.home)
    made: tuple[Verdict, ...] = ()
    if stopped:
        chosen = replace(dump, runs=tuple(runs))
        made += triage.examine(chosen, conclusion.ended, blocking=conclusion.blocking)
    made += tuple(nonfinite)
    recorded = {run.name: run for run in runs}
    return tuple(
        FollowedVerdict(
            verdict, next_command(conclusion.again, verdict, selection_of(recorded[verdict.run]))
        )
        for verdict in made
    )
