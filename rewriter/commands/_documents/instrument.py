"""The documents of `instrument`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from rewriter.artifact.graph_kind import GraphKind
from rewriter.artifact.types import Wrapper
from rewriter.commands._documents.fields import BackupPath, CachePath, Diff, OutputPath, WrapperName
from rewriter.commands._documents.list import UnrecognisedEntry
from rewriter.commands._output import Delivered
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.instrumentation.types import Instrumented, Plan, Selection
from rewriter.rebuild.patch import Built, Probed
from rewriter.rebuild.types import Checked, Route


class SkippedEntry(Entry, frozen=True, kw_only=True):
    """A launch that is not instrumented in full."""

    launch: Count
    reason: str


class InstrumentDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of one wrapper."""

    artifact: str
    probes: tuple[str, ...]
    launches: Annotated[tuple[Count, ...], Meta(description="Indices of those with probes")]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    cache: CachePath


class InstrumentedWrapperEntry(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were instrumented."""

    wrapper: WrapperName
    graph: GraphKind
    probes: tuple[str, ...]
    launches: tuple[Count, ...]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    cache: CachePath


class InstrumentDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a directory, a log, or a file that holds several wrappers."""

    artifact: str
    probes: tuple[str, ...]
    wrappers: tuple[InstrumentedWrapperEntry, ...]
    changed: bool
    output: OutputPath


class ModelEntry(Entry, frozen=True, kw_only=True):
    """One model of a package that was instrumented; `route` is null where it was not built."""

    model: str
    wrapper: WrapperName
    route: Route | None
    why: Annotated[str | None, Meta(description="Why this route")]
    changes: Annotated[tuple[str, ...], Meta(description="To the recorded build commands")]
    launches: tuple[Count, ...]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]


class InstrumentPackageDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a package."""

    artifact: str
    probes: tuple[str, ...]
    models: tuple[ModelEntry, ...]
    check: Annotated[
        Checked,
        Meta(description="linked: it was not loaded, and the note says why"),
    ]
    note: str
    seconds: float
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    cache: CachePath


def instrument_document(result: Instrumented, delivered: Delivered) -> InstrumentDocument:
    """Of one wrapper."""
    plan = result.plan
    return InstrumentDocument(
        artifact=str(result.path),
        probes=result.selection.probes,
        launches=_indices(plan),
        skipped=skipped_entries(plan),
        unrecognised=_unrecognised(plan),
        **vars(delivered),
    )


def instrumented_wrapper(
    wrapper: Wrapper, result: Instrumented, delivered: Delivered
) -> InstrumentedWrapperEntry:
    """Of one of several wrappers."""
    plan = result.plan
    return InstrumentedWrapperEntry(
        wrapper=wrapper.name,
        graph=wrapper.graph,
        probes=result.selection.probes,
        launches=_indices(plan),
        skipped=skipped_entries(plan),
        unrecognised=_unrecognised(plan),
        **vars(delivered),
    )


def package_document(
    path: str,
    selection: Selection,
    probed: Sequence[Probed],
    delivered: Delivered,
    built: Built | None,
    seconds: float,
) -> InstrumentPackageDocument:
    """Of a package, which was `built` if that was asked for."""
    return InstrumentPackageDocument(
        artifact=path,
        probes=selection.probes,
        models=tuple(_model(wrapper, built, number) for number, wrapper in enumerate(probed)),
        check=built.check if built else "skipped",
        note=built.note if built else "",
        seconds=round(seconds, 3),
        **vars(delivered),
    )


def _model(one: Probed, built: Built | None, number: int) -> ModelEntry:
    plan = one.result.plan
    recipe = built.recipes[number] if built else None
    return ModelEntry(
        model=one.model.name,
        wrapper=one.model.wrapper,
        route=recipe.route if recipe else None,
        why=recipe.why if recipe else None,
        changes=recipe.notes if recipe else (),
        launches=_indices(plan),
        skipped=skipped_entries(plan),
        unrecognised=_unrecognised(plan),
    )


def _indices(plan: Plan) -> tuple[int, ...]:
    return tuple(launch.index for launch in plan.probed)


def skipped_entries(plan: Plan) -> tuple[SkippedEntry, ...]:
    return tuple(
        SkippedEntry(launch=skipped.launch.index, reason=skipped.reason) for skipped in plan.skipped
    )


def _unrecognised(plan: Plan) -> tuple[UnrecognisedEntry, ...]:
    return tuple(entry(UnrecognisedEntry, call) for call in plan.unrecognised)
