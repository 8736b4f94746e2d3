"""What `instrument` and `strip` do to packages, which are built where they are written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Artifact
from rewriter.commands._deliver import BuiltPackage, Delivered, deliver, only_shows, require_target
from rewriter.commands._options import refuse_options
from rewriter.commands._output import emit, steps, summary, warn_about
from rewriter.commands._package_options import BuildOptions, PackageOptions
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import message
from rewriter.instrumentation.probe_check import ProbeCheck
from rewriter.instrumentation.rebuild import built, patch, probed_models, script, strip
from rewriter.instrumentation.rebuild.patch import Built
from rewriter.instrumentation.rebuild.probed_models import Probed
from rewriter.instrumentation.types import Selection, Stripped


@dataclass(frozen=True)
class Done:
    """What was put into a package, where it went, how it was built, and in how many seconds."""

    probed: Sequence[Probed]
    delivered: Delivered
    built: Built | None
    seconds: float


def instrument(
    arguments: PackageOptions, artifact: Artifact, selection: Selection, *, may_replace: bool
) -> int:
    """Patch a package as the options say, and report it."""
    if arguments.no_rebuild:
        idle = "in_place route no_check imports"
        refuse_options(arguments, idle, "--no-rebuild builds nothing")
    default = _sources_path if arguments.no_rebuild else files.output_path
    done = build(
        arguments,
        artifact,
        partial(probed_models.instrument, selection=selection),
        default,
        may_replace=may_replace,
        no_rebuild=arguments.no_rebuild,
    )
    delivered = done.delivered
    if arguments.json:
        from rewriter.commands._documents.instrument import package_document

        path = str(artifact.path)
        emit(package_document(path, selection, done.probed, delivered, done.built, done.seconds))
    elif arguments.check or delivered.is_written:
        _tell(arguments, artifact, done)
    return DIFFERS if arguments.check and delivered.changed else OK


def build(
    arguments: BuildOptions,
    artifact: Artifact,
    make: Callable[[Package], Sequence[Probed]],
    default: Callable[[Path], Path],
    *,
    may_replace: bool,
    no_rebuild: bool = False,
) -> Done:
    """Put what `make` returns into a package, and write it as the options say."""
    assert isinstance(artifact, Package)
    require_target(arguments, artifact)
    started = time.perf_counter()
    done: list[Built] = []
    shows, builds = only_shows(arguments), not (no_rebuild or only_shows(arguments))
    with ExitStack() as running:
        original = running.enter_context(strip.plain(artifact, may_replace=may_replace))
        if builds:
            beginning = patch.begin(
                original, check=not arguments.no_check, imports=arguments.imports
            )
            begun = running.enter_context(beginning)
        probed = make(original)
        if not builds:
            probed_models.verify_all(original, probed)
        for patched in probed:
            warn_about(patched.result.plan)
        sources = {wrapper.name: wrapper.source for wrapper in artifact.wrappers}
        sources |= {patched.model.wrapper: patched.result.source for patched in probed}

        def write(path: Path) -> bool:
            if builds:
                route = arguments.route
                done.append(patch.rebuild(probed, path, begun, route=route, report=steps()))
            else:
                script.write(original, probed, path)
            return True

        is_changed = any(wrapper.source != sources[wrapper.name] for wrapper in artifact.wrappers)
        made = BuiltPackage(
            artifact.path,
            is_changed or not shows,
            tuple(sources),
            write,
            original.path,
            is_folder=artifact.path.is_dir() or no_rebuild,
        )
        delivered = deliver(arguments, artifact, sources, default, made)
    result = done[0] if done else None
    return Done(probed, delivered, result, time.perf_counter() - started)


def _sources_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.instrumented")


def stripped(artifact: Artifact) -> tuple[list[Stripped], BuiltPackage]:
    """The wrappers of a package without probes, and the package without them."""
    assert isinstance(artifact, Package)
    results = [
        Stripped(wrapper.path, wrapper.restored.source, wrapper.source, wrapper.removed, True)
        for wrapper in artifact.wrappers
    ]
    has_probes = artifact.manifest is not None or any(result.removed for result in results)
    return results, BuiltPackage(
        artifact.path,
        has_probes,
        tuple(wrapper.name for wrapper in artifact.wrappers),
        partial(strip.strip if has_probes else _copy, artifact),
        is_folder=artifact.is_folder,
    )


def _copy(package: Package, output: Path) -> bool:
    if package.is_folder:
        shutil.copytree(package.path, output)
    else:
        shutil.copyfile(package.path, output)
    return True


def check(artifact: Artifact) -> list[tuple[str, ProbeCheck | None]]:
    """Whether a patched package is what `instrument` packs, under its name."""
    assert isinstance(artifact, Package)
    is_patched = artifact.manifest is not None
    return [(artifact.path.name, built.check(artifact))] if is_patched else []


def tell_built(built: Built | None, number: int, text: str) -> None:
    """Say what was put into a model, and how that was built."""
    if built is not None:
        chosen = built.recipes[number]
        text += f"; route {chosen.route}: {chosen.why}"
        for note in chosen.notes:
            message(f"  {note}")
    message(text)


def _tell(arguments: PackageOptions, artifact: Artifact, done: Done) -> None:
    delivered, built = done.delivered, done.built
    for number, patched in enumerate(done.probed):
        tell_built(built, number, f"{patched.model.name}: {summary(patched.result)}")
    tell_checked(built)
    where = delivered.tell(artifact.path)
    if arguments.no_rebuild and delivered.output:
        where += f"; sh {Path(delivered.output) / script.NAME} builds the package"
    message(f"{where} ({done.seconds:.1f} s)")


def tell_checked(built: Built | None) -> None:
    """Say what checking the result said."""
    if built is not None:
        results = {
            "loaded": "loaded, and runs what was built",
            "linked": f"not loaded: {built.note}",
        }
        message(f"check: {results.get(built.check, built.check)}")
