"""The document of `compare --ranks`, from a comparison of the ranks of one dump."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.commands._documents.compare import ComparisonEntry, ManifestEntry, comparison_entry
from rewriter.comparison.dumps import describe_ranks
from rewriter.comparison.dumps.describe_ranks import RanksOutcome
from rewriter.comparison.dumps.ranks import Ranks
from rewriter.comparison.dumps.replica import Divergence, Reason, Replica
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.dump import rows


class PartingEntry(Entry, frozen=True, kw_only=True):
    """A place where a rank differs from the reference, and why."""

    rank: Annotated[
        Count, Meta(description='The rank that parts; of "ended", the one whose record ends')
    ]
    reason: Reason
    run: Annotated[str, Meta(description="Its call, such as rank1/run0")]
    launch: Annotated[
        Count, Meta(description="Position in `launches` of that replica's comparison")
    ]
    names: Annotated[
        tuple[str, ...], Meta(description='Inputs of the call; of "collective", its kernel')
    ]
    sentence: str


class ReplicaEntry(Entry, frozen=True, kw_only=True):
    """A rank against the reference."""

    rank: Count
    sentence: str
    partings: tuple[PartingEntry, ...]
    given: Annotated[
        tuple[PartingEntry, ...],
        Meta(
            description="What made values differ and is no fault, from where on: data, random, "
            "received"
        ),
    ]
    alike: Annotated[
        Count | None,
        Meta(description="The rank that compares like this one, if many do: see its comparison"),
    ]
    comparison: Annotated[
        ComparisonEntry | None,
        Meta(
            description="A is this rank, B the reference. Null where the two have nothing in "
            "common, and where another rank compares alike"
        ),
    ]


class RanksDocument(Document, frozen=True, kw_only=True, tag="rewriter.ranks"):
    """`rewriter compare --ranks --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    verdict: Annotated[
        RanksOutcome,
        Meta(
            description='"different data": launches whose inputs agree do not differ, but ranks '
            "were given other values"
        ),
    ]
    sentence: Annotated[str, Meta(description="The verdict for people")]
    path: str
    manifest: ManifestEntry
    reference: Annotated[Count, Meta(description="The rank that the others are compared with")]
    first: Annotated[
        PartingEntry | None,
        Meta(description="Where a rank diverges first, in the order in which the reference ran"),
    ]
    groups: Annotated[
        tuple[tuple[Count, ...], ...],
        Meta(description="Ranks that have the same at that place"),
    ]
    odd: Annotated[
        tuple[Count, ...],
        Meta(
            description="Of three or more, the ranks outside the largest group; empty if none is "
            "largest"
        ),
    ]
    replicas: tuple[ReplicaEntry, ...]


def ranks_document(ranks: Ranks) -> RanksDocument:
    parted = ranks.parted
    return entry(
        RanksDocument,
        ranks,
        verdict=describe_ranks.outcome(ranks),
        sentence=describe_ranks.verdict(ranks),
        path=str(ranks.path),
        manifest=rows.to_json(ranks.manifest),
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


def _parting(replica: Replica, divergence: Divergence) -> PartingEntry:
    assert replica.comparison is not None
    positions = {id(x): at for at, x in enumerate(replica.comparison.launches)}
    launch, sentence = positions[id(divergence.launch)], describe_ranks.reason(divergence)
    return entry(PartingEntry, divergence, launch=launch, sentence=sentence)
