"""Puts probes into a package: locate, plan, apply, build, pack, check."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Event

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package import library, pack
from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package
from rewriter.artifact.types import Artifact
from rewriter.core import files, json_text, parallel
from rewriter.core.errors import FAILED, RewriterError
from rewriter.instrumentation.rebuild import build, preflight, probed_models, recipe, unpack
from rewriter.instrumentation.rebuild.build import Report
from rewriter.instrumentation.rebuild.build_steps import OTHER, Job, Unpacked
from rewriter.instrumentation.rebuild.check import ExpectedModel, Loading, link_check, load
from rewriter.instrumentation.rebuild.machine import Machine
from rewriter.instrumentation.rebuild.probed_models import Probed, instrument, verify_all
from rewriter.instrumentation.rebuild.recipe import Flags, Recipe
from rewriter.instrumentation.rebuild.strip import plain, strip
from rewriter.instrumentation.rebuild.types import Checked, Route
from rewriter.instrumentation.rebuild.unpack import Reading
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Selection
from rewriter.runtime import build as runtime_build

_LARGE = 64 << 20  # bytes of a library that take longer to unpack than to load


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


def _job(plan: _Plan, gpu_kernels: tuple[tuple[int, Path], ...]) -> Job:
    assert plan.original is not None
    made = replace(
        probed_models.job(plan.probed, plan.recipe, plan.original), unpacked=plan.unpacked
    )
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
    if any(OTHER.match(flag) for flag in flags.arguments):
        return None
    found = list(runtime_build.built("recorder", ".o"))
    # The last runs on every processor.
    is_native = "-march=native" in flags.arguments
    return found[0 if is_native else -1] if found else None


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
    made = probed_models.changes(probed, sources, libraries, operators)
    fields = probed_models.manifest(probed, [plan.recipe.route for plan in plans])
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


def _package(path: str | Path | Artifact) -> Package:
    artifact = path if isinstance(path, Artifact) else open_artifact(path)
    if not isinstance(artifact, Package):
        raise RewriterError(
            "not-a-package",
            f"{artifact.path} is no package",
            hint="rewriter.instrument and rewriter.strip are for wrappers in files of their own.",
        )
    return artifact
