"""The documents of `run` on an artifact, and of `triage`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from rewriter.commands._documents.cache import CacheRunDocument
from rewriter.commands._documents.launch_times import LaunchTimeEntry
from rewriter.core.documents import Count, Document, Entry, LineNumber, Row
from rewriter.diagnosis.documents import VerdictEntry

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
    line: LineNumber
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


class StepEntry(Entry, frozen=True, kw_only=True):
    """One of the runs, and how it ended."""

    name: str
    crashed: bool
    how: str
    seconds: float


class EmptyTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` where nothing crashed, or which was interrupted."""

    steps: tuple[StepEntry, ...]
    verdict: None
    next: Literal[""]
    unexpected: Annotated[tuple[Row, ...], Meta(max_length=0)]
    dump: None


class ArtifactTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of an artifact that crashed."""

    artifact: str
    steps: tuple[StepEntry, ...]
    verdict: First
    verdicts: tuple[VerdictEntry, ...]
    next: Next
    unexpected: tuple[Row, ...]
    dump: str | None


class ProgramTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of a program that crashed; `run` is null where it could not be
    probed."""

    steps: tuple[StepEntry, ...]
    run: CacheRunDocument | None
