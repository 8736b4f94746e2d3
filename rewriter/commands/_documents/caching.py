"""The documents of `cache`, from its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rewriter.cache.journal import Running
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.select import Chosen
from rewriter.cache.slots import Cache, Slot
from rewriter.commands._cache_run import ProbedRun
from rewriter.commands._documents.cache import (
    BrokenSlotEntry,
    CacheInstrumentDocument,
    CacheListDocument,
    CacheRestoreDocument,
    CacheRunDocument,
    CacheStatusDocument,
    CalledWrapperEntry,
    FindingEntry,
    ListedSlotEntry,
    PlacedEntry,
    RefusedEntry,
    RunningEntry,
    SlotEntry,
    UnprobedEntry,
)
from rewriter.commands._documents.launch_times import launch_time
from rewriter.commands._documents.patching import skipped_entries
from rewriter.diagnosis.conclusion import ended_status
from rewriter.diagnosis.documents import verdict_entry
from rewriter.dump.rows import to_json


def list_document(cache: Cache, chosen: Chosen, running: Running | None) -> CacheListDocument:
    return CacheListDocument(
        directory=str(cache.directory),
        wrappers=tuple(_listed(slot) for slot in chosen.slots),
        broken=tuple(BrokenSlotEntry(wrapper=name, reason=why) for name, why in chosen.broken),
        foreign=tuple(cache.foreign),
        kernel_files=cache.kernels,
        running=_running(running),
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


def run_document(probed: ProbedRun) -> CacheRunDocument:
    """Of a program that ran with probes."""
    request, run = probed.request, probed.run
    return CacheRunDocument(
        directory=str(request.directory),
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
            for one in run.placed
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
        probes=tuple(slot.probes),
    )


def _listed(slot: Slot) -> ListedSlotEntry:
    launches = slot.wrapper.located.launches
    return ListedSlotEntry(
        wrapper=slot.name,
        path=str(slot.path),
        modified=slot.modified,
        state=slot.state,
        backup=slot.backup,
        probes=tuple(slot.probes),
        graph=slot.wrapper.graph,
        language=slot.wrapper.language,
        launches=len(launches),
        kernels=_each(launch.kernel for launch in launches),
        source_nodes=_each(node for launch in launches for node in launch.source_nodes),
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
