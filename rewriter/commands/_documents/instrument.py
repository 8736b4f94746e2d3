"""The documents of `instrument`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rewriter.artifact.types import Wrapper
from rewriter.commands._deliver import Delivered
from rewriter.core.documents import Document, Entry
from rewriter.core.printed import printed
from rewriter.instrumentation.rebuild.patch import Built
from rewriter.instrumentation.rebuild.probed_models import Probed
from rewriter.instrumentation.rebuild.types import Checked, Route
from rewriter.instrumentation.types import Instrumented, Selection


@printed("artifact=result.path result.selection.probes *result.plan *delivered")
class InstrumentDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of one wrapper."""

    result: Instrumented
    delivered: Delivered


@printed("wrapper=wrapper.name wrapper.graph result.selection.probes *result.plan *delivered")
class InstrumentedWrapper(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were instrumented."""

    wrapper: Wrapper
    result: Instrumented
    delivered: Delivered


@printed("artifact selection.probes wrappers delivered.changed delivered.output")
class InstrumentDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a directory, a log, or a file that holds several wrappers."""

    artifact: str
    selection: Selection
    wrappers: tuple[InstrumentedWrapper, ...]
    delivered: Delivered


@printed("model=probed.model.name probed.model.wrapper route why changes *probed.result.plan")
class InstrumentedModel(Entry, frozen=True, kw_only=True):
    """One model of a package that was instrumented; `route` is null where it was not built."""

    probed: Probed
    route: Route | None = None
    why: Annotated[str | None, Meta(description="Why this route")] = None
    changes: Annotated[tuple[str, ...], Meta(description="To the recorded build commands")] = ()


@printed("artifact selection.probes models check note seconds *delivered")
class InstrumentPackageDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a package."""

    artifact: str
    selection: Selection
    models: tuple[InstrumentedModel, ...]
    check: Annotated[
        Checked,
        Meta(description="linked: it was not loaded, and the note says why"),
    ]
    note: str
    seconds: float
    delivered: Delivered


def directory_document(
    path: Path,
    selection: Selection,
    pairs: Sequence[tuple[Wrapper, Instrumented]],
    delivered: Delivered,
) -> InstrumentDirectoryDocument:
    """Of several wrappers, or those in a file with other data."""
    wrappers = (
        InstrumentedWrapper(wrapper=wrapper, result=result, delivered=delivered.each[wrapper.name])
        for wrapper, result in pairs
    )
    return InstrumentDirectoryDocument(
        artifact=str(path), selection=selection, wrappers=tuple(wrappers), delivered=delivered
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
    models = [InstrumentedModel(probed=model) for model in probed]
    if built is not None:
        models = [
            InstrumentedModel(probed=x, route=recipe.route, why=recipe.why, changes=recipe.notes)
            for x, recipe in zip(probed, built.recipes, strict=True)
        ]
    return InstrumentPackageDocument(
        artifact=path,
        selection=selection,
        models=tuple(models),
        check=built.check if built else "skipped",
        note=built.note if built else "",
        seconds=round(seconds, 3),
        delivered=delivered,
    )
