"""What `rewriter doctor` says of a package: what is in it, and what building it again would do."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild import preflight, recipe, unpack
from rewriter.instrumentation.rebuild.machine import Machine
from rewriter.instrumentation.rebuild.strip import plain
from rewriter.instrumentation.rebuild.types import Check


def examine(package: Package) -> Iterator[Check]:
    """Look at each model. Nothing is compiled or loaded; what stands in the way is a check."""
    machine = Machine.detect()
    if package.manifest is not None:
        probes = ", ".join(package.manifest.get("probes", ()))
        yield Check(
            "probes", f"{probes}; below is the original", None, "`rewriter strip` takes them out"
        )
    with plain(package, may_replace=True) as original:
        for model, wrapper in zip(original.models, original.wrappers, strict=True):
            launches = wrapper.launches
            kinds = ", ".join(sorted({launch.kind for launch in launches})) or "none"
            yield Check(
                f"model {model.name}",
                f"{model.device}; {len(launches)} launches ({kinds}); weights {model.weights}",
            )
            if wrapper.unrecognised:
                lines = ", ".join(str(call.line) for call in wrapper.unrecognised)
                yield Check(
                    "unrecognised calls", f"line {lines}", None, "they are not instrumented"
                )
            if operators := sorted({x.kernel for x in launches if x.kind == "custom_op"}):
                names = ", ".join(operators)
                hint = "the program that loads it registers them; --import MODULE does so here"
                yield Check("custom operators", names, None, hint)
            try:
                library = unpack.library_of(original, model, check=True)
            except RewriterError as error:
                yield Check("library", error.message, False, error.hint, error.slug)
                continue
            yield from preflight.checks(model, library, machine)
            yield from _route(model, library, machine)


def _route(model: Model, library: Library | None, machine: Machine) -> Iterator[Check]:
    try:
        chosen = recipe.choose(model, library, machine)
    except RewriterError as error:
        yield Check("route", error.message, False, error.hint, error.slug)
        return
    yield Check("route", f"{chosen.route}: {chosen.why}")
    for note in chosen.notes:
        what, _, about = note.partition(": ")
        yield Check(what, about, None)
