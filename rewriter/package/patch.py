"""Puts probes into a package and takes them out again: locate, plan, apply, build, pack, check."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rewriter import api, edit, write
from rewriter.artifact import Artifact, open_artifact
from rewriter.cpp import runtime
from rewriter.errors import FAILED, RewriterError
from rewriter.package import build, library, pack, preflight, recipe
from rewriter.package.build import Report
from rewriter.package.check import Expected, Loading, link_check, load
from rewriter.package.container import Overlay
from rewriter.package.library import Library
from rewriter.package.machine import Machine, look
from rewriter.package.model import Model, Package
from rewriter.package.pack import Changes
from rewriter.package.recipe import Recipe, Route
from rewriter.types import Instrumented, Json, Selection
from rewriter.version import __version__


@dataclass(frozen=True)
class Probed:
    """One model of a package with the result of instrumenting its wrapper."""

    model: Model
    result: Instrumented


@dataclass(frozen=True)
class Built:
    """A patched package: how each model was built, and what checking the result said.

    `check` is `loaded`, `linked` (this machine cannot load it), `sources` or `skipped`; `note` says
    why it was not loaded.
    """

    recipes: tuple[Recipe, ...]
    check: str
    note: str = ""


def patch(
    package: str | Path | Artifact,
    output: str | Path,
    selection: Selection | None = None,
    *,
    route: Route | None = None,
    check: bool = True,
    imports: Sequence[str] = (),
    replace: bool = False,
    overwrite: bool = False,
    report: Report = lambda text: None,
) -> Built:
    """Put probes into a package: build it again with them, check it, and write it to `output`.

    `rewriter.open(path, models=…)` chooses models, `rewriter.select()` makes the selection.
    `imports` are modules that register custom operators, for the check. `report` is told what was
    done.

    Raises `RewriterError`, before any work, where this machine cannot build the package.
    """
    artifact = package if isinstance(package, Artifact) else api.open(package)
    with plain(artifact, may_replace=replace) as original:
        probed = instrument(original, selection or api.select())
        with write.whole(Path(output), overwrite=overwrite) as temporary:
            return rebuild(
                original,
                probed,
                temporary,
                route=route,
                check=check,
                imports=imports,
                report=report,
            )


def restore(package: str | Path, output: str | Path, *, overwrite: bool = False) -> bool:
    """Write a package without its probes to `output`; whether it is exactly the original."""
    artifact = api.open(package)
    with write.whole(Path(output), overwrite=overwrite) as temporary:
        return strip(_package(artifact), temporary)


def instrument(artifact: Artifact, selection: Selection) -> tuple[Probed, ...]:
    """Put probes into the wrappers of a package. Nothing is built or written.

    The launches that a selection asks for may be in some of the models only; those without any
    stay as they are.
    """
    package = _package(artifact)
    results = []
    missed: RewriterError | None = None
    for model, wrapper in zip(package.models, artifact.wrappers, strict=True):
        try:
            results.append(Probed(model, api.instrument_wrapper(wrapper, selection)))
        except RewriterError as error:
            if error.slug != "no-launch-matches":
                raise
            missed = error
    if missed and not results:
        raise missed
    return tuple(results)


@contextmanager
def plain(artifact: Artifact, *, may_replace: bool) -> Iterator[Artifact]:
    """The artifact without probes: itself, or for the time being what it was patched from."""
    package = _package(artifact)
    probed = [wrapper for wrapper in artifact.wrappers if wrapper.probes is not None]
    if package.manifest is None and not probed:
        yield artifact
        return
    if not may_replace:
        names = ", ".join((package.manifest or {}).get("probes", ())) or "probes"
        raise RewriterError(
            "already-instrumented",
            f"{artifact.path} is instrumented already (with {names})",
            hint="Pass --replace to exchange its probes, or `rewriter strip` it first.",
        )
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        original = Path(scratch) / artifact.path.name
        if not strip(package, original):
            raise RewriterError(
                "edited-since",
                f"{artifact.path} was changed after it was instrumented: "
                "without its probes it is not the package that it was made from",
                hint="`rewriter strip` it, look at the result, and instrument that.",
            )
        yield open_artifact(original, tuple(model.name for model in package.models))


def rebuild(
    artifact: Artifact,
    probed: Sequence[Probed],
    output: Path,
    *,
    route: Route | None = None,
    check: bool = True,
    imports: Sequence[str] = (),
    report: Report = lambda text: None,
) -> Built:
    """Build the models with probes and write the package to `output`, which must not exist yet.

    Raises `RewriterError` before any work where this machine cannot, and leaves nothing behind
    where something fails.
    """
    package = _package(artifact)
    machine = look()
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder:
        scratch = Path(folder)
        plans = list(_plans(package, probed, machine, scratch, route, check=check))
        loads = check and not package.is_folder
        loading = Loading.start(scratch) if loads else None
        try:
            jobs = [
                _job(one, chosen, original)
                for one, (chosen, original) in zip(probed, plans, strict=True)
                if original is not None
            ]
            built = iter(build.build(jobs, package.container, scratch, report))
            libraries = [next(built) if original is not None else None for _, original in plans]
            for new, (_, original) in zip(libraries, plans, strict=True):
                if new is not None and original is not None:
                    link_check(library.read(new, new.name), original, machine)
            changes = _changes(probed, libraries, scratch)
            _write(package, output, changes, about(probed, [chosen.route for chosen, _ in plans]))
            said, note = "skipped", ""
            if loading is not None:
                report("loading the package")
                models = {one.model.name: _expected(one.model) for one in probed}
                said, note = load(loading, output, package.path, models, imports)
            return Built(tuple(chosen for chosen, _ in plans), said, note)
        except BaseException:
            _remove(output)
            raise
        finally:
            if loading is not None:
                loading.stop()


def _plans(
    package: Package,
    probed: Sequence[Probed],
    machine: Machine,
    scratch: Path,
    route: Route | None,
    *,
    check: bool,
) -> Iterator[tuple[Recipe, Library | None]]:
    """How each model is built, with its library unpacked. Refuses before anything is compiled."""
    for number, one in enumerate(probed):
        original = extract_library(package, one.model, scratch / f"original{number}.so")
        found = preflight.checks(one.model, original, machine, runs_here=check)
        preflight.require(found, package, one.model)
        yield recipe.choose(one.model, original, machine, route), original


def extract_library(package: Package, model: Model, to: Path) -> Library | None:
    """Copy the library of a model out of its package and read it; None if it has none."""
    if model.library is None:
        return None
    package.container.extract(model.library, to)
    return library.read(to, f"{package.path}: {model.library}")


def _job(one: Probed, chosen: Recipe, original: Library) -> build.Job:
    selection = one.result.selection
    return build.Job(
        recipe=chosen,
        source=one.result.source,
        library=original,
        kernels_name=PurePosixPath(kernels_name(one.model)).name,
        runtime=runtime.apart(selection.probes, selection.format),
        defines=("-DINDUCTOR_REWRITER_APART",),
    )


def kernels_name(model: Model) -> str:
    """What the original library is called in a patched package: other than the new one has to be.

    As long as the old name, since in a zip file it takes its place.
    """
    assert model.library is not None
    stem = model.library.removesuffix(".so")
    # Releases up to 2.6 do not say `.wrapper`.
    end = ".kernels" if stem.endswith(".wrapper") else "_" if stem[-1] != "_" else "-"
    return f"{stem[: -len(end)]}{end}.so"


def _changes(probed: Sequence[Probed], libraries: Sequence[Path | None], scratch: Path) -> Changes:
    replaced, renamed, added = {}, {}, []
    for number, (one, new) in enumerate(zip(probed, libraries, strict=True)):
        source = scratch / f"{number}.cpp"
        source.write_bytes(one.result.source)
        replaced[one.model.wrapper] = source
        if new is not None:
            assert one.model.library is not None
            kernels = kernels_name(one.model)
            renamed[one.model.library] = kernels
            added.append((one.model.library, new, kernels))
    return Changes(replaced, renamed, added)


def _expected(model: Model) -> Expected:
    return Expected(model.device, PurePosixPath(model.library or "").name)


def about(probed: Sequence[Probed], routes: Sequence[Route]) -> Json:
    """What the manifest says of a package, beside how to restore it."""
    selection = probed[0].result.selection
    return {
        "tool": f"inductor-rewriter {__version__}",
        "probes": list(selection.probes),
        "when": selection.when,
        "output_format": selection.format,
        "values": selection.values,
        "models": {
            one.model.name: {
                "wrapper": one.model.wrapper,
                "library": one.model.library,
                "original_library": None if one.model.library is None else kernels_name(one.model),
                "route": route,
                "launches": [launch.index for launch in one.result.plan.probed],
            }
            for one, route in zip(probed, routes, strict=True)
        },
    }


def _write(package: Package, output: Path, changes: Changes, about: Json) -> None:
    """Write the patched package, and make sure that the original can be had back from it."""
    if package.is_folder:
        pack.patch_folder(package.path, output, package.root, changes, about)
        return
    pack.patch(package.path, output, package.root, changes, about)
    if not pack.restore(output, package.root):
        raise RewriterError(
            "verification-failed",
            f"{package.path}: stripping the patched package would not give back the original",
            hint="Nothing was written. Please report this with the package.",
            code=FAILED,
        )


def strip(package: Package, output: Path) -> bool:
    """Write a package without its probes to `output`; whether it is exactly the original.

    Where somebody changed or packed it again since, the members are what they were before, and
    the changes stay.
    """
    if package.is_sources:
        return _strip_sources(package, output)
    if package.manifest is not None and not package.is_folder:
        try:
            if pack.restore(package.path, package.root, output):
                return True
        except (KeyError, TypeError, ValueError):
            pass  # a manifest that somebody wrote: go by the members
        _remove(output)
    return _strip_members(package, output)


def _strip_sources(package: Package, output: Path) -> bool:
    """The package beside the sources is the original, if the sources are those of that package."""
    assert isinstance(package.container, Overlay)
    assert package.manifest is not None
    original = package.container.original
    shutil.copyfile(original.path, output)
    return bool(pack.sha256(output) == package.manifest["original"]["sha256"]) and all(
        edit.strip(model.source).source == original.read(model.wrapper) for model in package.models
    )


def _strip_members(package: Package, output: Path) -> bool:
    """Undo by name what was done to each member."""
    models = (package.manifest or {}).get("models", {})
    undo = {
        about["original_library"]: about["library"]
        for about in models.values()
        if about.get("original_library") in package.container.names
    }
    dropped = set(undo.values()) | {package.root + pack.MANIFEST, package.root + pack.DIRECTORY}
    wrappers = {model.wrapper: edit.strip(model.source) for model in package.models}
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        members = []
        for number, name in enumerate(package.container.names):
            if name in dropped and name not in undo:
                continue
            file = Path(scratch) / str(number)
            if name in wrappers:
                file.write_bytes(wrappers[name].source)
            else:
                package.container.extract(name, file)
            members.append((undo.get(name, name), file))
        if package.is_folder:
            pack.write_folder(output, members)
        else:
            pack.write(output, members)
    return package.is_folder and all(restored.exact for restored in wrappers.values())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _package(artifact: Artifact) -> Package:
    assert artifact.package is not None
    return artifact.package
