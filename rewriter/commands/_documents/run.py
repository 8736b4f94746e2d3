"""The document of `run` on an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rewriter.core.documents import Count, Document, LineIfKnown, Row
from rewriter.core.printed import printed
from rewriter.core.types import Json
from rewriter.diagnosis.judged import Judged
from rewriter.execution.run_result import RunResult
from rewriter.locate.types import Launch


@printed("launch.index launch.kernel launch.kind line runs writes")
class RanLaunch(NamedTuple):
    """A launch that ran, how often, and the rows of what its last run wrote."""

    launch: Launch
    runs: Count
    writes: list[Row]

    @property
    def line(self) -> LineIfKnown:
        return self.launch.line


@printed(
    "artifact=result.path command result.dump exit=result.code result.ended.signal"
    " result.ended.message result.ended.timed_out result.interrupted verdict=judged.first"
    " judged.verdicts judged.next result.unexpected judged.times judged.trace result.seconds"
    " result.inputs result.outputs result.replayed result.random_globals launches"
)
class RunDocument(Document, frozen=True, kw_only=True, tag="rewriter.run"):
    """`rewriter run --json` on an artifact. `dump` is null where nothing was recorded, `signal` 0
    where none ended it. `verdict` is the first of `verdicts`, and `next` tells more of it."""

    result: RunResult
    command: str
    judged: Judged

    @property
    def launches(self) -> tuple[RanLaunch, ...]:
        return tuple(_by_launch(self.result))


def _by_launch(ran: RunResult) -> Iterator[RanLaunch]:
    seen: dict[int, dict[int, list[Json]]] = {}
    for row in ran.events:
        if "launch" not in row:
            continue  # the inputs of the call
        seen.setdefault(row["launch"], {}).setdefault(row.get("iteration", 0), []).append(row)
    for launch in ran.launches:
        if runs := seen.get(launch.index):
            last = runs[max(runs)]
            written = [
                row
                for row in last
                if row["phase"] == "after" and row.get("role") != "in" and "dtype" in row
            ]
            yield RanLaunch(launch, len(runs), written)
