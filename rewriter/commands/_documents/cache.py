"""The documents of `cache`, and of a program that ran with probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, structs

from rewriter.artifact.graph_kind import GraphKind
from rewriter.cache.journal import Running
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.select import Chosen
from rewriter.cache.slots import BackupKind, Cache, Slot, SlotState
from rewriter.commands._cache import OtherCache
from rewriter.commands._cache_run import ProgramRun
from rewriter.commands._documents.instrument import SkippedEntry, skipped_entries
from rewriter.commands._documents.launch_times import LaunchTimeEntry, launch_time
from rewriter.core.documents import Count, Document, Entry, Row
from rewriter.core.types import Language
from rewriter.diagnosis.conclusion import ended_status
from rewriter.diagnosis.documents import VerdictEntry, verdict_entry
from rewriter.dump.documents import EndedStatus
from rewriter.dump.names import NO_NAMES, Names
from rewriter.dump.rows import to_json

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
    model: Annotated[
        str, Meta(description="The part of the model that it is, by its first line; may be empty")
    ]
    partner: Annotated[
        str, Meta(description="The wrapper of the other direction, if a model is trained; or empty")
    ]


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
    others: Annotated[tuple[str, ...], Meta(description="Other caches that it put probes into")]


class OtherCacheEntry(Entry, frozen=True, kw_only=True):
    """A cache that is not where torch puts it."""

    directory: str
    engine: Annotated[str, Meta(description="vLLM, SGLang, or empty")]
    wrappers: Count


class CacheListDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-list"):
    """`rewriter cache list --json`."""

    directory: str
    wrappers: tuple[ListedSlotEntry, ...]
    broken: tuple[BrokenSlotEntry, ...]
    foreign: Annotated[tuple[str, ...], Meta(description="Files that are no wrappers")]
    kernel_files: Count
    running: RunningEntry | None
    others: Annotated[
        tuple[OtherCacheEntry, ...],
        Meta(description="Of serving engines, or with COMMAND, those that it used"),
    ]


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
    others: Annotated[tuple[str, ...], Meta(description="Other caches that the program used")]
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


def list_document(
    cache: Cache,
    chosen: Chosen,
    parts: Mapping[str, Names],
    running: Running | None,
    others: Sequence[OtherCache] = (),
) -> CacheListDocument:
    """The wrappers of a cache; `parts` says which part of the model each is."""
    return CacheListDocument(
        directory=str(cache.directory),
        wrappers=tuple(
            _listed(slot, parts.get(slot.wrapper.name, NO_NAMES)) for slot in chosen.slots
        ),
        broken=tuple(BrokenSlotEntry(wrapper=name, reason=why) for name, why in chosen.broken),
        foreign=tuple(cache.foreign),
        kernel_files=cache.kernels,
        running=_running(running),
        others=tuple(
            OtherCacheEntry(
                directory=str(one.cache.directory),
                engine=one.engine,
                wrappers=len(one.cache.slots),
            )
            for one in others
        ),
    )


def status_document(cache: Cache, products: int, running: Running | None) -> CacheStatusDocument:
    return CacheStatusDocument(
        directory=str(cache.directory),
        wrappers=tuple(_slot(slot) for slot in cache.slots if slot.state != "plain"),
        products=products,
        temporary=tuple(map(str, cache.temporary)),
        running=_running(running),
    )


def instrument_document(
    directory: Path, placed: Sequence[Placed], refused: Sequence[Refused]
) -> CacheInstrumentDocument:
    return CacheInstrumentDocument(
        directory=str(directory),
        wrappers=tuple(
            PlacedEntry(
                wrapper=one.slot.name,
                probes=one.result.selection.probes,
                launches=tuple(launch.index for launch in one.result.plan.probed),
                skipped=skipped_entries(one.result.plan),
            )
            for one in placed
        ),
        refused=_refused(refused),
    )


def restore_document(directory: Path, cleared: Cleared) -> CacheRestoreDocument:
    return CacheRestoreDocument(directory=str(directory), **vars(cleared))


def run_document(probed: ProgramRun) -> CacheRunDocument:
    """Of a program that ran with probes."""
    request, run = probed.request, probed.run
    return CacheRunDocument(
        directory=str(request.directory),
        others=tuple(map(str, run.others)),
        program=request.program,
        command=request.command,
        ended=ended_status(run.ended),
        interrupted=run.interrupted,
        runs=run.runs,
        wrappers=tuple(
            CalledWrapperEntry(
                wrapper=one.slot.name,
                graph=one.slot.wrapper.graph,
                launches=len(one.result.plan.probed),
                calls=run.summary.calls.get(one.slot.path.name, 0),
            )
            for one in run.wrappers
        ),
        refused=_refused(run.refused),
        unprobed=tuple(
            UnprobedEntry(wrapper=one.slot.name, frozen=one.frozen) for one in run.unprobed
        ),
        launches=run.summary.launches,
        findings=tuple(
            FindingEntry(kind=x.kind, artifact=x.artifact, run=x.run, event=to_json(x.row))
            for x in run.summary.findings
        ),
        left=tuple(name for cleared in run.cleared for name in cleared.left),
        dump=None if run.dump is None else str(run.dump),
        verdicts=tuple(map(verdict_entry, probed.verdicts)),
        next=probed.following[0] if probed.following else "",
        times=tuple(map(launch_time, probed.times)),
        trace=None if probed.trace is None else str(probed.trace),
    )


def _slot(slot: Slot) -> SlotEntry:
    return SlotEntry(
        wrapper=slot.name,
        path=str(slot.path),
        modified=slot.modified,
        state=slot.state,
        backup=slot.backup,
        probes=slot.probes,
    )


def _listed(slot: Slot, part: Names) -> ListedSlotEntry:
    launches = slot.wrapper.located.launches
    return ListedSlotEntry(
        **structs.asdict(_slot(slot)),
        graph=slot.wrapper.graph,
        language=slot.wrapper.language,
        launches=len(launches),
        kernels=_each(launch.kernel for launch in launches),
        source_nodes=_each(node for launch in launches for node in launch.source_nodes),
        model=part.graph,
        partner=part.partner,
    )


def _running(running: Running | None) -> RunningEntry | None:
    return None if running is None else RunningEntry(**vars(running))


def _refused(refused: Sequence[Refused]) -> tuple[RefusedEntry, ...]:
    return tuple(
        RefusedEntry(wrapper=one.slot.name, error=one.error.slug, reason=one.error.message)
        for one in refused
    )


def _each(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
