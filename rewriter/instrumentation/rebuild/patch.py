"""Puts probes into a package and takes them out again: locate, plan, apply, build, pack, check."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Event
from types import MappingProxyType

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package import library, pack
from rewriter.artifact.package.container import Overlay
from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package, open_package
from rewriter.artifact.package.pack import Changes
from rewriter.artifact.types import Artifact
from rewriter.core import edit, files, json_text, limits, markers, parallel
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.labels import labels
from rewriter.core.types import Json
from rewriter.instrumentation import compilation_units, probes
from rewriter.instrumentation.editable import require_plain
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.matching import chosen_text, with_launches
from rewriter.instrumentation.rebuild import build, preflight, recipe, unpack
from rewriter.instrumentation.rebuild.build import Report, Unpacked
from rewriter.instrumentation.rebuild.check import ExpectedModel, Loading, link_check, load
from rewriter.instrumentation.rebuild.machine import Machine
from rewriter.instrumentation.rebuild.recipe import Flags, Recipe
from rewriter.instrumentation.rebuild.types import Checked, Route
from rewriter.instrumentation.rebuild.unpack import Reading
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Instrumented, Plan, Selection
from rewriter.instrumentation.verify import verify
from rewriter.runtime import build as runtime_build
from rewriter.version import __version__

_LARGE = 64 << 20  # bytes of a library that take longer to unpack than to load


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


@dataclass(frozen=True)
class Built:
    """A patched package: how each model was built, and what checking the result said.

    `check` is `loaded`, `linked` (it was not loaded, `note` says why) or `skipped`.
    """

    recipes: tuple[Recipe, ...]
    check: Checked
    note: str = ""


@dataclass(frozen=True)
class _Plan:
    """The build plan of one model. `original` is its library, if it has one, and `unpacked` a copy
    of it to link against."""

    probed: Probed
    recipe: Recipe
    original: Library | None
    unpacked: Unpacked | None

    @property
    def name(self) -> str:
        return self.probed.model.name


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

    Raises `RewriterError`, before anything is compiled, where this machine cannot build it.
    """
    with plain(_package(package), may_replace=replace) as original:
        folder = original.is_folder
        with (
            files.atomic_output(Path(output), overwrite=overwrite, directory=folder) as temporary,
            begin(original, check=check, imports=imports) as begun,
        ):
            probed = instrument(original, selection or select())
            return rebuild(probed, temporary, begun, route=route, report=report)


def restore(package: str | Path, output: str | Path, *, overwrite: bool = False) -> bool:
    """Write a package without its probes to `output`; whether it is exactly the original."""
    opened, path = _package(package), Path(output)
    with files.atomic_output(path, overwrite=overwrite, directory=opened.is_folder) as temporary:
        return strip(opened, temporary)


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


@contextmanager
def plain(package: Package, *, may_replace: bool) -> Iterator[Package]:
    """The package without probes: itself, or for the time being what it was patched from."""
    probed = [wrapper for wrapper in package.wrappers if wrapper.probes is not None]
    if package.manifest is None and not probed:
        yield package
        return
    for wrapper in probed:
        if wrapper.replaced:
            require_plain(wrapper, replace=may_replace)
    if not may_replace:
        names = ", ".join((package.manifest or {}).get("probes", ())) or "probes"
        raise RewriterError(
            "already-instrumented",
            f"{package.path} is instrumented already (with {names})",
            hint="Pass --replace to exchange its probes, or `rewriter strip` it first.",
        )
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        original = Path(scratch) / package.path.name
        if not strip(package, original):
            raise RewriterError(
                "edited-since",
                f"{package.path} was changed after it was instrumented: "
                "without its probes it is not the package that it was made from",
                hint="`rewriter strip` it, look at the result, and instrument that.",
            )
        yield open_package(original, tuple(model.name for model in package.models))


@dataclass(frozen=True)
class Begun:
    """What runs while wrappers are instrumented, since it takes as long: the package is read, and a
    process that will load the result imports torch.

    `scratch` goes away afterwards. `library_of` reads the library of a model, and refuses one that
    cannot be built here; `libraries` waits for those that can be, by the names of the models.
    `reading` is None for a directory; `loading` too, and where nothing is checked. `version` is
    that of the package.
    """

    package: Package
    version: tuple[int, ...]
    scratch: Path
    machine: Machine
    check: bool
    imports: Sequence[str]
    library_of: Callable[[Model], Library | None]
    libraries: Callable[[], Mapping[str, Library | None]]
    reading: Reading | None
    loading: Loading | None


@contextmanager
def begin(
    package: Package,
    *,
    check: bool = True,
    runs_here: bool | None = None,
    imports: Sequence[str] = (),
) -> Iterator[Begun]:
    """Begin to patch a package; what is still running when the body ends is stopped.

    `check` loads the result, with operators that `imports` register; `runs_here` (by default, if it
    is checked) refuses what this processor could not run. Nothing is refused here: only `rebuild`
    knows which models get probes.
    """
    machine = Machine.detect()
    version = _version(package.path)
    runs_here = check if runs_here is None else runs_here
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder, ExitStack() as running:
        scratch, loading = Path(folder), None
        if check and not package.is_folder:
            # Importing torch takes as long as all else does if nothing has to be compiled.
            devices = {model.device for model in package.models}
            loading = Loading.start_for(scratch, devices, imports)
            running.callback(loading.stop)
        of = partial(_buildable, package, machine, scratch, runs_here)
        libraries = running.enter_context(parallel.beside(partial(_libraries, package, of)))
        reading = running.enter_context(unpack.reading(package))
        yield Begun(
            package, version, scratch, machine, check, imports, of, libraries, reading, loading
        )


def _libraries(
    package: Package, library_of: Callable[[Model], Library | None], stopped: Event
) -> dict[str, Library | None]:
    """The libraries of the models that can be built here, by their names."""
    libraries = {}
    with suppress(RewriterError):  # `rebuild` finds it again, if that model gets probes
        for model in package.models:
            if not stopped.is_set():
                libraries[model.name] = library_of(model)
    return libraries


def _buildable(
    package: Package, machine: Machine, scratch: Path, runs_here: bool, model: Model
) -> Library | None:
    """The library of a model. Raises `RewriterError` where the model cannot be built."""
    with ThreadPoolExecutor() as pool:
        pool.submit(preflight.ask_compiler, model, scratch)
        library = unpack.library_of(package, model)
    checks = preflight.checks(model, library, machine, runs_here=runs_here, scratch=scratch)
    preflight.require(checks, package, model)
    return library


def rebuild(
    probed: Sequence[Probed],
    output: Path,
    begun: Begun,
    *,
    route: Route | None = None,
    report: Report = lambda text: None,
) -> Built:
    """Build the models with probes and write the package to `output`, which must not exist yet.
    They are verified meanwhile.

    Raises `RewriterError` before anything is compiled where this machine cannot build it. What
    `output` holds after an error is of no use.
    """
    package, reading = begun.package, begun.reading
    with (
        parallel.beside(partial(verify_all, package, probed)) as verified,
        ThreadPoolExecutor() as pool,
        ExitStack() as running,
    ):
        stopped, copied, exact = Event(), None, None
        running.callback(stopped.set)
        if reading is not None:
            running.enter_context(reading.explains())
            copied = pool.submit(unpack.copy, package.path, output, stopped)
        plans = list(_plans(probed, begun, route))
        kernels = _gpu_kernels(package)
        jobs = {plan.name: _job(plan, kernels) for plan in plans if plan.original}
        try:
            built = build.build(jobs, begun.scratch, report)
        except RewriterError:
            verified()  # a wrapper that is wrong is why it does not compile
            raise
        verified()
        if copied is not None:
            copied.result()
        _write(output, plans, built, begun)
        if reading is not None:
            exact = pool.submit(_require_exact, package, output, begun.version, stopped)
        checked, note = _check(output, plans, built, begun, report)
        if exact is not None:
            exact.result()
        return Built(tuple(plan.recipe for plan in plans), checked, note)


def _check(
    output: Path,
    plans: Sequence[_Plan],
    built: Mapping[str, Path],
    begun: Begun,
    report: Report,
) -> tuple[Checked, str]:
    """Load the patched package, and say why not if it cannot be done."""
    if not begun.check:
        return "skipped", ""
    if begun.package.is_folder:
        _link_check(plans, built, begun.machine)
        return "linked", "a directory is not loaded"
    models = {plan.name: _expected(plan, built, begun.scratch) for plan in plans}
    devices = {plan.probed.model.device for plan in plans}
    loading = begun.loading or Loading.start_for(begun.scratch, devices, begun.imports)
    report("loading the package")
    try:
        checked, note = load(loading, output, begun.package.path, models, begun.imports)
    except RewriterError:
        _link_check(plans, built, begun.machine)  # a symbol that is missing says more
        raise
    finally:
        loading.stop()
    if checked == "linked":  # the loader would have resolved all symbols
        _link_check(plans, built, begun.machine)
    return checked, note


def _link_check(plans: Sequence[_Plan], built: Mapping[str, Path], machine: Machine) -> None:
    for plan in plans:
        if plan.original is not None:
            link_check(library.read(built[plan.name], "the new library"), plan.original, machine)


def _plans(probed: Sequence[Probed], begun: Begun, route: Route | None) -> Iterator[_Plan]:
    """How each model is built, with its library unpacked. Refuses before anything is compiled."""
    libraries = begun.libraries()
    for number, patched in enumerate(probed):
        model, unpacked = patched.model, None
        original = libraries[model.name] if model.name in libraries else begun.library_of(model)
        chosen = recipe.choose(model, original, begun.machine, route)
        if original is not None:
            to, whole = begun.scratch / f"original{number}.so", chosen.route != "link"
            unpacked = unpack.unpack(begun.package, model, original, to, whole=whole)
        yield _Plan(patched, chosen, original, unpacked)


def _job(plan: _Plan, gpu_kernels: tuple[tuple[int, Path], ...]) -> build.Job:
    assert plan.original is not None
    made = replace(job(plan.probed, plan.recipe, plan.original), unpacked=plan.unpacked)
    if made.recorder and plan.recipe.wrapper and (recorder := recorder_object(plan.recipe.wrapper)):
        return replace(made, recorder=recorder, gpu_kernels=gpu_kernels)
    return made


def _gpu_kernels(package: Package) -> tuple[tuple[int, Path], ...]:
    """The kernels of the recorder that came with the tool, for the device of a package's own."""
    member = next((name for name in package.container.names if name.endswith(".cubin")), None)
    if member is None:
        return ()
    with package.container.open(member) as file:
        head = file.read(52).ljust(52, b"\0")
    # The flags of its ELF header, whose second byte it is since the eighth version of the format.
    target = head[49] if head[8] >= 8 else head[48]
    for number in range(target, target // 10 * 10 - 1, -1):
        if (path := runtime_build.BUILT / f"kernels-sm_{number}.cubin").is_file():
            return ((number, path),)
    return ()


def recorder_object(flags: Flags) -> Path | None:
    """The recorder that came with the tool, if it suits a wrapper that is compiled like this."""
    if any(build.OTHER.match(flag) for flag in flags.arguments):
        return None
    found = list(runtime_build.built("recorder", ".o"))
    # The last runs on every processor.
    is_native = "-march=native" in flags.arguments
    return found[0 if is_native else -1] if found else None


def job(probed: Probed, chosen: Recipe, original: Library) -> build.Job:
    """What to compile for a model: its wrapper, and the table and the probes apart from it."""
    if not probed.needs_recorder:
        return build.Job(recipe=chosen, source=probed.result.source, library=original)
    units = compilation_units.split(probed.result, probed.everything)
    return build.Job(
        recipe=chosen,
        source=units.wrapper,
        library=original,
        table=units.table,
        recorder=units.runtime,
    )


def _expected(plan: _Plan, built: Mapping[str, Path], scratch: Path) -> ExpectedModel:
    """What loading a model has to do. Of a large library, which the loader of packages would unpack
    with all of its weights, the new one is loaded beside what was linked to."""
    model, unpacked = plan.probed.model, plan.unpacked
    if model.library is None:
        return ExpectedModel(model.device, "")
    name = PurePosixPath(model.library).name
    is_large = unpacked is not None and unpacked.path.stat().st_size >= _LARGE
    is_alone = not (model.operators or plan.probed.operators)
    if unpacked is None or not (is_large and is_alone) or plan.recipe.route != "link":
        return ExpectedModel(model.device, name)
    folder = Path(tempfile.mkdtemp(dir=scratch))
    os.link(built[plan.name], folder / name)
    os.link(unpacked.path, folder / PurePosixPath(model.original_library).name)
    return ExpectedModel(model.device, name, folder / name)


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


def _write(
    output: Path, plans: Sequence[_Plan], libraries: Mapping[str, Path], begun: Begun
) -> None:
    """Write the patched package."""
    package, reading = begun.package, begun.reading
    probed = [plan.probed for plan in plans]
    own = {wrapper.name: wrapper.operators for wrapper in package.wrappers}
    sources, operators = {}, {}
    for number, patched in enumerate(probed):
        sources[patched.model.name] = begun.scratch / f"{number}.cpp"
        sources[patched.model.name].write_bytes(patched.result.source)
        if patched.operators:
            operators[patched.model.name] = begun.scratch / f"{number}.json"
            nodes = [*own[patched.model.wrapper], *patched.operators]
            text = json_text.encode({"nodes": nodes})
            operators[patched.model.name].write_text(text, encoding="utf-8")
    made = changes(probed, sources, libraries, operators)
    fields = manifest(probed, [plan.recipe.route for plan in plans])
    if reading is None:
        pack.patch_folder(package.path, output, package.root, made, fields)
    else:
        pack.append(output, package.root, made, fields, reading.finish())


def _version(path: Path) -> tuple[int, ...]:
    """Another one if the file is changed or replaced."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def _require_exact(
    package: Package, output: Path, version: tuple[int, ...], stopped: Event
) -> None:
    """Make sure that the original can be had back from a patched package."""
    is_exact = pack.gives_back(output, package.root, package.path, stopped)
    if _version(package.path) != version:
        raise RewriterError(
            "package-changed",
            f"{package.path} was changed while it was patched",
            hint="Nothing was written. Patch it again, when nothing else writes it.",
        )
    if not is_exact:
        raise RewriterError(
            "verification-failed",
            f"{package.path}: stripping the patched package would not restore the original",
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
        if pack.restore(package.path, package.root, output):
            return True
        output.unlink(missing_ok=True)
    _strip_members(package, output)
    original = (package.manifest or {}).get("original")
    return package.is_folder and isinstance(original, dict) and pack.hashes(output) == original


def _strip_sources(package: Package, output: Path) -> bool:
    """The package beside the sources is the original, if the sources are those of that package."""
    assert isinstance(package.container, Overlay)
    assert package.manifest is not None
    original = package.container.original
    shutil.copyfile(original.path, output)
    return bool(pack.sha256(output) == package.manifest["original"].get("sha256")) and all(
        edit.strip(model.source).source == original.read(model.wrapper, limits.WRAPPER_BYTES)
        for model in package.models
    )


def _strip_members(package: Package, output: Path) -> None:
    """Undo by name what was done to each member."""
    models = (package.manifest or {}).get("models", {})
    undo = {
        about["original_library"]: about["library"]
        for about in models.values()
        if about.get("original_library") in package.container.names
    }
    dropped = set(undo.values()) | {package.root + pack.MANIFEST, package.root + pack.DIRECTORY}
    edited = {model.wrapper: edit.strip(model.source).source for model in package.models}
    for model, wrapper in zip(package.models, package.wrappers, strict=True):
        if model.operators and (ours := models.get(model.name, {}).get("operators")):
            nodes = wrapper.operators[:-ours]
            if not nodes:
                dropped.add(model.operators)
            edited[model.operators] = json_text.encode({"nodes": list(nodes)}).encode()
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        members = []
        for number, name in enumerate(package.container.names):
            if name in dropped and name not in undo:
                continue
            file = Path(scratch) / str(number)
            if name in edited:
                file.write_bytes(edited[name])
            else:
                package.container.extract(name, file)
            members.append((undo.get(name, name), file))
        if package.is_folder:
            pack.write_folder(output, members)
        else:
            pack.write(output, members)


def _package(path: str | Path | Artifact) -> Package:
    artifact = path if isinstance(path, Artifact) else open_artifact(path)
    if not isinstance(artifact, Package):
        raise RewriterError(
            "not-a-package",
            f"{artifact.path} is no package",
            hint="rewriter.instrument and rewriter.strip are for wrappers in files of their own.",
        )
    return artifact
