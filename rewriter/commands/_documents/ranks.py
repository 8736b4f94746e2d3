"""The document of `compare --ranks`, from a comparison of the ranks of one dump."""

from __future__ import annotations

from typing import Literal

from rewriter.commands._documents.compare import ComparisonEntry, comparison_entry
from rewriter.comparison.dumps import describe_ranks
from rewriter.comparison.dumps.describe_ranks import RanksOutcome
from rewriter.comparison.dumps.ranks import Ranks
from rewriter.comparison.dumps.replica import Divergence, Replica
from rewriter.core.documents import Count, Document, Entry
from rewriter.core.printed import printed


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


def ranks_document(ranks: Ranks) -> RanksDocument:
    parted = ranks.parted
    return RanksDocument(
        verdict=describe_ranks.outcome(ranks),
        sentence=describe_ranks.verdict(ranks),
        ranks=ranks,
        first=_parting(parted, parted.first) if parted and parted.first else None,
        replicas=tuple(map(_replica, ranks.replicas)),
    )


def _replica(replica: Replica) -> ReplicaEntry:
    comparison, is_alike = replica.comparison, replica.alike is not None
    return ReplicaEntry(
        rank=replica.rank,
        sentence=describe_ranks.line(replica),
        partings=tuple(_parting(replica, divergence) for divergence in replica.divergences),
        given=tuple(_parting(replica, divergence) for divergence in replica.given),
        alike=replica.alike,
        comparison=None if comparison is None or is_alike else comparison_entry(comparison),
    )


def _parting(replica: Replica, divergence: Divergence) -> Parting:
    assert replica.comparison is not None
    positions = {id(x): at for at, x in enumerate(replica.comparison.launches)}
    return Parting(
        divergence=divergence,
        launch=positions[id(divergence.launch)],
        sentence=describe_ranks.reason(divergence),
    )
