"""The documents of `compare`: of two dumps, and of the ranks of one."""

from __future__ import annotations

from typing import Literal

from rewriter.comparison.dumps import describe, describe_ranks
from rewriter.comparison.dumps.describe_ranks import RanksOutcome
from rewriter.comparison.dumps.ranks import Ranks
from rewriter.comparison.dumps.replica import Divergence, Replica
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


@printed("*divergence launch sentence")
class Parting(Entry, frozen=True, kw_only=True):
    """A place where a rank differs from the reference, and why: `launch` is a position in the
    `launches` of the comparison of that replica, `names` are inputs of the call, or a collective's
    kernel."""

    divergence: Divergence
    launch: Count
    sentence: str


class ReplicaEntry(Entry, frozen=True, kw_only=True):
    """A rank, A in `comparison`, against the reference, B. `given` made values differ and is no
    fault. `comparison` is null where the two have nothing in common, and where many compare like
    another rank, `alike`."""

    rank: Count
    sentence: str
    partings: tuple[Parting, ...]
    given: tuple[Parting, ...]
    alike: Count | None
    comparison: ComparisonEntry | None


@printed("verdict sentence *ranks first replicas")
class RanksDocument(Document, frozen=True, kw_only=True, tag="rewriter.ranks"):
    """`rewriter compare --ranks --json`.

    `first` is where a rank diverges first, in the order of the reference. `groups` are ranks that
    have the same there, `odd` those outside the largest group of three or more ranks.
    """

    version: Literal[2] = 2  # type: ignore[assignment]
    verdict: RanksOutcome
    sentence: str
    ranks: Ranks
    first: Parting | None
    replicas: tuple[ReplicaEntry, ...]


def document(compared: Comparison | Ranks) -> CompareDocument | RanksDocument:
    if isinstance(compared, Comparison):
        return CompareDocument(comparison=_comparison(compared))
    parted = compared.parted
    return RanksDocument(
        verdict=describe_ranks.outcome(compared),
        sentence=describe_ranks.verdict(compared),
        ranks=compared,
        first=_parting(parted, parted.first) if parted and parted.first else None,
        replicas=tuple(map(_replica, compared.replicas)),
    )


def _comparison(comparison: Comparison) -> ComparisonEntry:
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


def _replica(replica: Replica) -> ReplicaEntry:
    comparison, is_alike = replica.comparison, replica.alike is not None
    return ReplicaEntry(
        rank=replica.rank,
        sentence=describe_ranks.line(replica),
        partings=tuple(_parting(replica, divergence) for divergence in replica.divergences),
        given=tuple(_parting(replica, divergence) for divergence in replica.given),
        alike=replica.alike,
        comparison=None if comparison is None or is_alike else _comparison(comparison),
    )


def _parting(replica: Replica, divergence: Divergence) -> Parting:
    assert replica.comparison is not None
    positions = {id(x): at for at, x in enumerate(replica.comparison.launches)}
    return Parting(
        divergence=divergence,
        launch=positions[id(divergence.launch)],
        sentence=describe_ranks.reason(divergence),
    )
