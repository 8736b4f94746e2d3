"""How long launches took, as `run` prints it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, convert

from rewriter.core.documents import Count, Entry
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
    return convert(timed.json(), LaunchTimeEntry)
