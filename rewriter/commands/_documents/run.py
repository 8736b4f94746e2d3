"""The document of `run` on an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from rewriter.commands._documents.launch_times import LaunchTimeEntry, launch_time
from rewriter.commands._documents.verdicts import VerdictEntry, verdict_entry
from rewriter.commands._run_text import by_launch
from rewriter.core.documents import Count, Document, Entry, LineIfKnown, Row, entry
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump import timing
from rewriter.execution.run_result import RunResult

# The host process describes tensors, and whatever else a wrapper may return.
OutputEntry = Annotated[
    dict[str, Any],
    Meta(
        description="A returned value: of a tensor dtype, shape, device, sha256 and nan; of others "
        "their text",
        extra_json_schema={"required": ["type"]},
    ),
]
First = Annotated[VerdictEntry | None, Meta(description="The first of verdicts; null for none")]
Next = Annotated[str, Meta(description="What tells more of the first verdict; may be empty")]


class RanLaunchEntry(Entry, frozen=True, kw_only=True):
    """A launch that ran, and what it wrote last."""

    index: Count
    kernel: str
    kind: str
    line: LineIfKnown
    runs: Count
    writes: tuple[Row, ...]


class RunDocument(Document, frozen=True, kw_only=True, tag="rewriter.run"):
    """`rewriter run --json` on an artifact."""

    artifact: str
    command: str
    dump: Annotated[str | None, Meta(description="null: nothing was recorded")]
    exit: Annotated[Literal[0, 1, 130], Meta(description="The exit code of the command")]
    signal: Annotated[Count, Meta(description="The signal that ended the process; 0: none")]
    message: Annotated[str, Meta(description="The exception that the wrapper raised")]
    timed_out: bool
    interrupted: bool
    verdict: First
    verdicts: tuple[VerdictEntry, ...]
    next: Next
    unexpected: Annotated[
        tuple[Row, ...], Meta(description="Inputs that are not what the wrapper was compiled for")
    ]
    times: Annotated[tuple[LaunchTimeEntry, ...], Meta(description="With the probe time")]
    trace: Annotated[str | None, Meta(description="For Perfetto, with the probe time")]
    seconds: float
    inputs: Literal["random", "file", "recorded"]
    outputs: tuple[OutputEntry, ...]
    replayed: Annotated[
        tuple[Literal["equal", "differs", "unknown", "value"], ...],
        Meta(description="Of a recorded call: each output against the recorded one"),
    ]
    random_globals: Annotated[
        tuple[str, ...], Meta(description="Weights that only the loader knows: random values here")
    ]
    launches: tuple[RanLaunchEntry, ...]


def run_document(
    result: RunResult,
    command: str,
    verdicts: Sequence[Verdict],
    following: Sequence[str],
    trace: Path | None,
) -> RunDocument:
    """`command` repeats the run, `following` tell more of the verdicts."""
    entries = tuple(map(verdict_entry, verdicts))
    times = timing.table(result.dump) if trace and result.dump else ()
    return entry(
        RunDocument,
        result,
        artifact=str(result.path),
        command=command,
        dump=None if result.dump is None else str(result.dump),
        exit=result.code,
        signal=result.ended.signal,
        message=result.ended.message,
        timed_out=result.ended.timed_out,
        interrupted=result.ended.interrupted != 0,
        verdict=entries[0] if entries else None,
        verdicts=entries,
        next=following[0] if following else "",
        times=tuple(map(launch_time, times)),
        trace=None if trace is None else str(trace),
        seconds=round(result.seconds, 3),
        launches=tuple(
            entry(RanLaunchEntry, launch, runs=runs, writes=written)
            for launch, runs, written in by_launch(result)
        ),
    )
