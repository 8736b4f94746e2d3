"""The documents of `instrument`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rewriter.artifact.graph_kind import GraphKind
from rewriter.artifact.types import Wrapper
from rewriter.commands._deliver import Delivered
from rewriter.commands._documents.fields import BackupPath, CachePath, Diff, OutputPath, WrapperName
from rewriter.commands._documents.list import UnrecognisedEntry
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.core.types import Json
from rewriter.instrumentation.rebuild.patch import Built, Probed
from rewriter.instrumentation.rebuild.types import Checked, Route
from rewriter.instrumentation.types import Instrumented, Selection


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
    return entry(InstrumentDocument, delivered, artifact=str(result.path), **_made(result))


def directory_document(
    path: Path,
    selection: Selection,
    pairs: Sequence[tuple[Wrapper, Instrumented]],
    delivered: Delivered,
) -> InstrumentDirectoryDocument:
    """Of several wrappers, or those in a file with other data."""
    return entry(
        InstrumentDirectoryDocument,
        delivered,
        artifact=str(path),
        probes=selection.probes,
        wrappers=tuple(
            entry(
                InstrumentedWrapperEntry,
                delivered.each[wrapper.name],
                wrapper=wrapper.name,
                graph=wrapper.graph,
                **_made(result),
            )
            for wrapper, result in pairs
        ),
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
    return entry(
        InstrumentPackageDocument,
        delivered,
        artifact=path,
        probes=selection.probes,
        models=tuple(_model(patched, built, number) for number, patched in enumerate(probed)),
        check=built.check if built else "skipped",
        note=built.note if built else "",
        seconds=round(seconds, 3),
    )


def _model(probed: Probed, built: Built | None, number: int) -> ModelEntry:
    recipe = built.recipes[number] if built else None
    return entry(
        ModelEntry,
        probed.model,
        model=probed.model.name,
        route=recipe.route if recipe else None,
        why=recipe.why if recipe else None,
        changes=recipe.notes if recipe else (),
        **{name: value for name, value in _made(probed.result).items() if name != "probes"},
    )


def _made(result: Instrumented) -> Json:
    plan = result.plan
    return {
        "probes": result.selection.probes,
        "launches": tuple(launch.index for launch in plan.probed),
        "skipped": tuple(
            SkippedEntry(launch=skipped.launch.index, reason=skipped.reason)
            for skipped in plan.skipped
        ),
        "unrecognised": plan.unrecognised,
    }
