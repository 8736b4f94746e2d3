"""How long launches took, as `run` prints it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.core.documents import Count, Entry, entry
from rewriter.dump.timing import Timed


class LaunchTimeEntry(Entry, frozen=True, kw_only=True):
    """All runs of one launch, of every rank and call."""

    artifact: str
    launch: Count
    kernel: str
    kind: str
    runs: Count
    total_us: float
    mean_us: float
    share: Annotated[float, Meta(description="Of the time of all launches, up to 1")]
    clock: Annotated[str, Meta(description="What measured it: cuda or host")]


def launch_time(timed: Timed) -> LaunchTimeEntry:
    return entry(
        LaunchTimeEntry,
        timed,
        total_us=round(timed.total, 3),
        mean_us=round(timed.mean, 3),
        share=round(timed.share, 6),
    )
