"""Makes a report of the ranks of one dump: one finding, where a rank diverges first.

Launches that differ because ranks were given data of their own, or because of what differed before
them, are in the tables and no findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rewriter.comparison.dumps import describe_ranks
from rewriter.comparison.dumps.ranks import Ranks
from rewriter.comparison.dumps.replica import Divergence
from rewriter.comparison.dumps.types import Comparison
from rewriter.report import compared
from rewriter.report.findings import sentence
from rewriter.report.types import Report, ReportedFinding, ReportedLaunch, ReportedRun, Severity


def report(result: Ranks) -> Report:
    """The report of all ranks against the reference; the rank that parts first comes first.

    Of many ranks, those that compare alike have the launches of one of them.
    """
    whole = _merged(result)
    base = compared.report(whole, describe_ranks.verdict(result), tiled=False)
    shown: dict[int, tuple[ReportedRun, ReportedLaunch]] = {}
    for run, its in zip(whole.runs, base.runs, strict=True):
        for launch, made in zip(run.launches, its.launches, strict=True):
            shown[id(launch)] = (its, made)
    findings = tuple(_findings(result, shown))
    of_runs = {run.name: tuple(x for x in findings if x.run == run.name) for run in base.runs}
    kept = tuple(x for x in base.findings if x.kind in ("limit", "unpaired"))
    return replace(
        base,
        findings=(*findings, *kept),
        runs=tuple(replace(run, findings=of_runs[run.name]) for run in base.runs),
        next=base.next if result.first else None,
    )


def _merged(result: Ranks) -> Comparison:
    """Every rank against the reference, as one comparison."""
    comparisons = result.comparisons
    return replace(
        comparisons[0],
        a=comparisons[0].a if len(comparisons) == 1 else result.path,
        runs=tuple(run for comparison in comparisons for run in comparison.runs),
        unpaired=tuple(
            dict.fromkeys(name for comparison in comparisons for name in comparison.unpaired)
        ),
    )


def _findings(
    result: Ranks, shown: Mapping[int, tuple[ReportedRun, ReportedLaunch]]
) -> Iterable[ReportedFinding]:
    first = result.first
    if first is not None and result.parted is not None:
        text = describe_ranks.sentence(first, result.parted.rank)
        yield _finding("culprit", "finding", text, first, shown)
    for replica in result.replicas:
        divergence = replica.first if replica is not result.parted else None
        if divergence is not None:
            text = describe_ranks.sentence(divergence, replica.rank)
            yield _finding("parts", "note", text, divergence, shown)
        for divergence in replica.given:
            text = describe_ranks.sentence(divergence, replica.rank)
            yield _finding("given", "note", text, divergence, shown)
        if replica.comparison is None:
            yield ReportedFinding(
                "apart", "note", f"Rank {replica.rank} was not compared: {replica.why}."
            )


def _finding(
    kind: str,
    severity: Severity,
    text: str,
    divergence: Divergence,
    shown: Mapping[int, tuple[ReportedRun, ReportedLaunch]],
) -> ReportedFinding:
    run, launch = shown[id(divergence.launch)]
    return ReportedFinding(kind, severity, sentence(text), run.name, launch)
