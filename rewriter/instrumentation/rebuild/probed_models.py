"""The models of a package with probes in their wrappers: what is compiled of each, and what that
changes in the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType

from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package
from rewriter.artifact.package.pack import Changes
from rewriter.core import markers
from rewriter.core.labels import labels
from rewriter.core.types import Json
from rewriter.instrumentation import compilation_units, probes
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.matching import chosen_text, with_launches
from rewriter.instrumentation.rebuild.build_steps import Job
from rewriter.instrumentation.rebuild.recipe import Recipe
from rewriter.instrumentation.rebuild.types import Route
from rewriter.instrumentation.types import Instrumented, Plan, Selection
from rewriter.instrumentation.verify import verify
from rewriter.version import __version__


@dataclass(frozen=True)
class Probed:
    """One model of a package with the result of instrumenting its wrapper.

    `everything` is the plan that it is compiled by, if that serves other selections, too.
    `operators` are nodes for its proxy executor, behind those that it has.
    """

    model: Model
    result: Instrumented
    everything: Plan | None = None
    operators: tuple[Json, ...] = ()

    @property
    def needs_recorder(self) -> bool:
        return self.result.selection.probes != (markers.REFERENCE,)


def instrument(package: Package, selection: Selection) -> tuple[Probed, ...]:
    """Put probes into the wrappers of a package. Nothing is built, written or verified: `rebuild`
    verifies, or `verify_all`.

    The launches that a selection asks for may be in some of the models only; those without any
    stay as they are.
    """
    both = list(zip(package.models, package.wrappers, strict=True))
    among = labels([(wrapper.graph, model.name) for model, wrapper in both])
    making = (
        # A package of sources is compiled where it is loaded, maybe without us.
        partial(
            instrument_wrapper,
            wrapper,
            selection,
            label=label,
            standalone=model.library is None,
            verified=False,
        )
        for (model, wrapper), label in zip(both, among, strict=True)
    )
    return tuple(
        Probed(model, result, compilation_units.plan_everything(wrapper, selection))
        for (model, wrapper), result in with_launches(both, making)
    )


def verify_all(package: Package, probed: Sequence[Probed], stopped: Event | None = None) -> None:
    """Verify the wrappers of a package, until it is stopped. Raises `RewriterError`."""
    wrappers = {wrapper.name: wrapper for wrapper in package.wrappers}
    for patched in probed:
        if stopped is None or not stopped.is_set():
            verify(wrappers[patched.model.wrapper], patched.result.source)


def job(probed: Probed, chosen: Recipe, original: Library) -> Job:
    """What to compile for a model: its wrapper, and the table and the probes apart from it."""
    if not probed.needs_recorder:
        return Job(recipe=chosen, source=probed.result.source, library=original)
    units = compilation_units.split(probed.result, probed.everything)
    return Job(
        recipe=chosen,
        source=units.wrapper,
        library=original,
        table=units.table,
        recorder=units.runtime,
    )


def changes(
    probed: Sequence[Probed],
    sources: Mapping[str, Path],
    libraries: Mapping[str, Path],
    operators: Mapping[str, Path] = MappingProxyType({}),
) -> Changes:
    """What happens to the members of a package; files are given by the names of the models."""
    with_library = [patched.model for patched in probed if patched.model.library is not None]
    replaced = {patched.model.wrapper: sources[patched.model.name] for patched in probed}
    models = [patched.model for patched in probed if patched.model.name in operators]
    replaced |= {x.operators: operators[x.name] for x in models if x.operators}
    new = [x for x in models if not x.operators]
    return Changes(
        replaced=replaced,
        renamed={str(model.library): model.original_library for model in with_library},
        added=[
            *(
                (str(model.library), libraries[model.name], model.original_library)
                for model in with_library
            ),
            *((x.operators_file, operators[x.name], x.wrapper) for x in new),
        ],
    )


def manifest(probed: Sequence[Probed], routes: Sequence[Route]) -> Json:
    """What the manifest says of a package, beside how to restore it."""
    selection = probed[0].result.selection
    recorded: Json = {
        "when": selection.when,
        "output_format": selection.format,
        "values": selection.values,
    }
    if probed[0].needs_recorder:
        recorded |= probes.recorded(selection)
    return {
        "tool": f"inductor-rewriter {__version__}",
        "probes": list(selection.probes),
        **recorded,
        "chosen": chosen_text(selection),
        "models": {
            patched.model.name: {
                "wrapper": patched.model.wrapper,
                "library": patched.model.library,
                "original_library": patched.model.original_library
                if patched.model.library
                else None,
                "route": route,
                "launches": [launch.index for launch in patched.result.plan.probed],
                # How many nodes at the end of the operators' file are ours.
                **({"operators": len(patched.operators)} if patched.operators else {}),
            }
            for patched, route in zip(probed, routes, strict=True)
        },
    }
