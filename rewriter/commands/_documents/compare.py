"""The document of `compare`, from a comparison of two dumps."""

from __future__ import annotations

from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.types import (
    Comparison,
    LaunchComparison,
    Outcome,
    RunComparison,
    Tolerance,
)
from rewriter.core.documents import Count, Document, Entry
from rewriter.core.printed import printed
from rewriter.dump.documents import Manifest


class ComparedDump(Entry, frozen=True, kw_only=True):
    """One of the two dumps."""

    path: str
    manifest: Manifest


@printed("run *launch")
class ComparedLaunch(Entry, frozen=True, kw_only=True):
    """A launch of one dump, and its counterpart in the other; null where it has none. `run` is a
    position in `runs`."""

    run: Count
    launch: LaunchComparison


class ComparisonEntry(Entry, frozen=True, kw_only=True):
    """Two dumps, launch by launch.

    `verdict` is of everything that could be compared, `sentence` says it for people, and `limits`
    what it cannot see. `needed` are the smallest tolerances under which all saved results pass,
    each without the other. `culprits` are positions in `launches`, in the order in which they ran:
    the runs diverge at the first. `unpaired` are runs without a counterpart, as "A rank0/run1".
    """

    verdict: Outcome
    sentence: str
    limits: tuple[str, ...]
    a: ComparedDump
    b: ComparedDump
    counts: describe.Counts
    needed: Tolerance | None
    culprits: tuple[Count, ...]
    runs: tuple[RunComparison, ...]
    unpaired: tuple[str, ...]
    launches: tuple[ComparedLaunch, ...]


@printed("*comparison")
class CompareDocument(Document, frozen=True, kw_only=True, tag="rewriter.compare"):
    """`rewriter compare --json`."""

    comparison: ComparisonEntry


def compare_document(comparison: Comparison) -> CompareDocument:
    return CompareDocument(comparison=comparison_entry(comparison))


def comparison_entry(comparison: Comparison) -> ComparisonEntry:
    """A comparison as a part of another document."""
    positions = {id(launch): position for position, launch in enumerate(comparison.launches)}
    return ComparisonEntry(
        verdict=describe.outcome(comparison),
        sentence=describe.verdict(comparison),
        limits=tuple(describe.limits(comparison)),
        a=ComparedDump(path=str(comparison.a), manifest=comparison.manifest_a),
        b=ComparedDump(path=str(comparison.b), manifest=comparison.manifest_b),
        counts=describe.count(comparison),
        needed=describe.needed(comparison),
        culprits=tuple(positions[id(launch)] for launch in comparison.culprits),
        runs=comparison.runs,
        unpaired=comparison.unpaired,
        launches=tuple(
            ComparedLaunch(run=number, launch=launch)
            for number, run in enumerate(comparison.runs)
            for launch in run.launches
        ),
    )
