"""The documents of `cache`, and of a program that ran with probes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.artifact.graphs import GraphKind
from rewriter.cache.slots import BackupKind, SlotState
from rewriter.commands._documents.artifacts import SkippedEntry
from rewriter.commands._documents.launch_times import LaunchTimeEntry
from rewriter.core.documents import Count, Document, Entry, Row
from rewriter.core.types import Language
from rewriter.diagnosis.documents import VerdictEntry
from rewriter.dump.documents import EndedStatus

WrapperFile = Annotated[str, Meta(description="The wrapper's path in the cache")]
Seconds = Annotated[float, Meta(description="Since 1970")]


class SlotEntry(Entry, frozen=True, kw_only=True):
    """A wrapper in its place in the cache."""

    wrapper: WrapperFile
    path: str
    modified: Seconds
    state: SlotState
    backup: BackupKind
    probes: tuple[str, ...]


class ListedSlotEntry(SlotEntry, frozen=True, kw_only=True):
    """A wrapper of the cache, with what it launches."""

    graph: GraphKind
    language: Language
    launches: Count
    kernels: tuple[str, ...]
    source_nodes: tuple[str, ...]


class BrokenSlotEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that cannot be read."""

    wrapper: WrapperFile
    reason: str


class RunningEntry(Entry, frozen=True, kw_only=True):
    """A `cache run` that is in progress, and the wrappers that it put probes into."""

    pid: int
    host: str
    started: Seconds
    wrappers: tuple[str, ...]
    command: str


class CacheListDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-list"):
    """`rewriter cache list --json`."""

    directory: str
    wrappers: tuple[ListedSlotEntry, ...]
    broken: tuple[BrokenSlotEntry, ...]
    foreign: Annotated[tuple[str, ...], Meta(description="Files that are no wrappers")]
    kernel_files: Count
    running: RunningEntry | None


class CacheStatusDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-status"):
    """`rewriter cache status --json`."""

    directory: str
    wrappers: Annotated[tuple[SlotEntry, ...], Meta(description="Those that are not plain")]
    products: Annotated[Count, Meta(description="Builds of wrappers that had probes")]
    temporary: Annotated[
        tuple[str, ...], Meta(description="Files that a command left which was stopped")
    ]
    running: RunningEntry | None


class PlacedEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that got probes."""

    wrapper: WrapperFile
    probes: tuple[str, ...]
    launches: Annotated[tuple[Count, ...], Meta(description="Indices of those with probes")]
    skipped: tuple[SkippedEntry, ...]


class RefusedEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that got none, and why."""

    wrapper: WrapperFile
    error: Annotated[str, Meta(description="A name in docs/errors.md")]
    reason: str


class CacheInstrumentDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-instrument"):
    """`rewriter cache instrument --json`."""

    directory: str
    wrappers: tuple[PlacedEntry, ...]
    refused: tuple[RefusedEntry, ...]


class CacheRestoreDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-restore"):
    """`rewriter cache restore --json`."""

    directory: str
    restored: tuple[str, ...]
    stripped: Annotated[tuple[str, ...], Meta(description="Edited: without probes, with the edits")]
    left: Annotated[tuple[str, ...], Meta(description="Edited, and as they were")]
    products: Annotated[Count, Meta(description="Builds of instrumented C++ that were removed")]
    graphs: Annotated[Count, Meta(description="Compiled graphs with probes that were removed")]


class CalledWrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that had probes while the program ran."""

    wrapper: WrapperFile
    graph: GraphKind
    launches: Annotated[Count, Meta(description="How many had probes")]
    calls: Annotated[Count, Meta(description="How many were recorded")]


class UnprobedEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that the program compiled only in its last run."""

    wrapper: WrapperFile
    frozen: Annotated[bool, Meta(description="Each process makes one of its own")]


class FindingEntry(Entry, frozen=True, kw_only=True):
    """A first NaN, a first infinity that a launch computed, or an unexpected input."""

    kind: Literal["nan", "inf", "unexpected"]
    artifact: str
    run: Annotated[str, Meta(description="The call in the dump, such as rank0/run3")]
    event: Row


class CacheRunDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-run"):
    """`rewriter run --json -- COMMAND`, which is `rewriter cache run --json`."""

    directory: str
    program: tuple[str, ...]
    command: str
    ended: EndedStatus
    interrupted: bool
    runs: Annotated[Count, Meta(description="How often the program ran")]
    wrappers: tuple[CalledWrapperEntry, ...]
    refused: tuple[RefusedEntry, ...]
    unprobed: tuple[UnprobedEntry, ...]
    launches: Annotated[Count, Meta(description="Recorded")]
    findings: tuple[FindingEntry, ...]
    left: Annotated[tuple[str, ...], Meta(description="Wrappers that were edited meanwhile")]
    dump: Annotated[str | None, Meta(description="null: nothing was recorded")]
    verdicts: tuple[VerdictEntry, ...]
    next: Annotated[str, Meta(description="What tells more of the first verdict; may be empty")]
    times: Annotated[tuple[LaunchTimeEntry, ...], Meta(description="With the probe time")]
    trace: Annotated[str | None, Meta(description="For Perfetto, with the probe time")]
