"""The documents of `instrument`, from its results."""

from __future__ import annotations

from collections.abc import Sequence

from rewriter.artifact.types import OpenWrapper
from rewriter.commands._documents.artifacts import (
    InstrumentDocument,
    InstrumentedWrapperEntry,
    InstrumentPackageDocument,
    ModelEntry,
    SkippedEntry,
    UnrecognisedEntry,
)
from rewriter.commands._output import Delivered
from rewriter.instrumentation.types import Instrumented, Plan, Selection
from rewriter.rebuild.patch import Built, Probed


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
    wrapper: OpenWrapper, result: Instrumented, delivered: Delivered
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
        models=tuple(_model(one, built, number) for number, one in enumerate(probed)),
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
    return tuple(SkippedEntry(launch=one.launch.index, reason=one.reason) for one in plan.skipped)


def _unrecognised(plan: Plan) -> tuple[UnrecognisedEntry, ...]:
    return tuple(UnrecognisedEntry(line=call.line, text=call.text) for call in plan.unrecognised)
