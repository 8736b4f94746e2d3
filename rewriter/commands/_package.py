"""`instrument` and `strip` of packages."""

from __future__ import annotations

import filecmp
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Artifact
from rewriter.commands._options import OutputOptions
from rewriter.commands._output import (
    Delivered,
    emit,
    only_shows,
    steps,
    summary,
    took_out,
    unified,
    warn_about,
)
from rewriter.commands._package_options import PackageOptions, refuse_options
from rewriter.core import files, text_diff
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message, say_text
from rewriter.core.transaction import Transaction
from rewriter.instrumentation.types import Selection
from rewriter.rebuild import patch, script
from rewriter.rebuild.patch import Built, Probed


def instrument(
    arguments: PackageOptions, artifact: Artifact, selection: Selection, *, may_replace: bool
) -> int:
    """Patch a package as the options say, and report it."""
    _refuse_output(arguments, artifact)
    if arguments.no_rebuild:
        refuse_options(
            arguments, ("in_place", "route", "no_check", "imports"), "--no-rebuild builds nothing"
        )
    started = time.perf_counter()
    built = None
    with patch.plain(artifact, may_replace=may_replace) as original:
        if only_shows(arguments):
            probed, delivered = _plan_and_show(arguments, artifact, original, selection)
        elif arguments.no_rebuild:
            probed, delivered = _write_sources(arguments, artifact, original, selection)
        else:
            probed, delivered, built = _build(arguments, artifact, original, selection)
    seconds = time.perf_counter() - started
    if arguments.json:
        from rewriter.commands._documents.instrument import package_document

        path = str(artifact.path)
        emit(package_document(path, selection, probed, delivered, built, seconds))
    elif arguments.check or delivered.output:
        _tell(arguments, artifact, probed, delivered, built, seconds)
    return DIFFERS if arguments.check and delivered.changed else OK


def _plan_and_show(
    arguments: PackageOptions,
    artifact: Artifact,
    original: Artifact,
    selection: Selection,
    *,
    verified: bool = True,
) -> tuple[tuple[Probed, ...], Delivered]:
    """Put probes into the wrappers, warn about them, and print their diff if that is asked for.
    If they are not `verified` here, `patch.rebuild` does that."""
    probed = patch.instrument(original, selection)
    if verified:
        patch.verify_all(original, probed)
    for one in probed:
        warn_about(one.result.plan)
    before = {wrapper.name: wrapper.source for wrapper in artifact.wrappers}
    diff = _diff(
        arguments, artifact, {wrapper.model.wrapper: wrapper.result.source for wrapper in probed}
    )
    changed = any(before[wrapper.model.wrapper] != wrapper.result.source for wrapper in probed)
    return probed, Delivered(changed, diff=diff)


def _write_sources(
    arguments: PackageOptions, artifact: Artifact, original: Artifact, selection: Selection
) -> tuple[tuple[Probed, ...], Delivered]:
    """Write the sources with probes, and a build script."""
    probed, shown = _plan_and_show(arguments, artifact, original, selection)
    output = _output(arguments, artifact.path)
    with files.atomic_output(output, overwrite=arguments.overwrite, directory=True) as temporary:
        script.write(original, probed, temporary)
    return probed, replace(shown, changed=True, output=str(output))


def _build(
    arguments: PackageOptions, artifact: Artifact, original: Artifact, selection: Selection
) -> tuple[tuple[Probed, ...], Delivered, Built]:
    """Build the package with probes."""
    output = artifact.path if arguments.in_place else _output(arguments, artifact.path)
    overwrite = arguments.overwrite or arguments.in_place
    if arguments.in_place:
        _require_backup(artifact.path, original.path, overwrite=arguments.overwrite)
    backup = None
    beginning = patch.begin(original, check=not arguments.no_check, imports=arguments.imports)
    with Transaction(output) as changes, beginning as begun:
        probed, shown = _plan_and_show(arguments, artifact, original, selection, verified=False)
        if arguments.in_place:
            # Staged before the package: if this is interrupted in between, the backup exists.
            backup = files.backup_path(output.resolve())
            mode = output.stat().st_mode
            shutil.copyfile(original.path, changes.stage(backup, mode=mode))
        folder = artifact.path.is_dir()
        temporary = files.stage(changes, output, overwrite=overwrite, directory=folder)
        built = patch.rebuild(
            original, probed, temporary, begun, route=arguments.route, report=steps()
        )
    kept = None if backup is None else str(backup)
    return probed, replace(shown, changed=True, output=str(output), backup=kept), built


def strip(arguments: OutputOptions, artifact: Artifact) -> int:
    """Write a package without its probes."""
    _refuse_output(arguments, artifact)
    package = artifact.package
    assert package is not None
    removed = sum(wrapper.removed for wrapper in artifact.wrappers)
    probed = package.manifest is not None or bool(removed)
    after = {wrapper.name: wrapper.restored.source for wrapper in artifact.wrappers}
    diff = _diff(arguments, artifact, after)
    delivered, exact = Delivered(probed, diff=diff), True
    wanted = arguments.output or arguments.in_place
    if not arguments.check and (probed or wanted) and (wanted or not arguments.diff):
        output = artifact.path if arguments.in_place else _plain_output(arguments, package)
        overwrite = arguments.overwrite or arguments.in_place
        with Transaction(output) as changes:
            plain = changes.about(output.resolve())
            if probed or arguments.output:
                folder = package.is_folder
                plain = files.stage(changes, output, overwrite=overwrite, directory=folder)
                exact = _write_plain(artifact, plain, probed=probed)
                delivered = Delivered(probed, str(output), diff=diff)
            backup = files.backup_path(output.resolve())
            if arguments.in_place and _is_copy(backup, plain):
                changes.remove(backup)
    if not exact:
        message(
            f"warning: {artifact.path} was changed or packed again after it was instrumented: "
            "the probes are gone, the changes stay"
        )
    if arguments.json:
        from rewriter.commands._documents.strip import StripDocument

        path = str(artifact.path)
        emit(StripDocument(artifact=path, removed=removed, exact=exact, **vars(delivered)))
    elif not probed:
        message(
            f"{artifact.path} has no probes" + (f": {delivered.output}" if delivered.output else "")
        )
    elif arguments.check or delivered.output:
        message(f"{took_out(arguments, removed)}: {delivered.tell(artifact.path)}")
    return DIFFERS if arguments.check and probed else OK


def _write_plain(artifact: Artifact, output: Path, *, probed: bool) -> bool:
    assert artifact.package is not None
    if probed:
        return patch.strip(artifact.package, output)
    if artifact.package.is_folder:
        shutil.copytree(artifact.path, output)
    else:
        shutil.copyfile(artifact.path, output)
    return True


def _refuse_output(arguments: OutputOptions, artifact: Artifact) -> None:
    if arguments.output == "-":
        raise RewriterError(
            "not-text",
            f"{artifact.path} is a package, and -o - is for text",
            hint="Name a file with -o. --diff prints what changes in the sources.",
        )
    if arguments.in_place and artifact.path.is_dir():
        raise RewriterError(
            "in-place-directory",
            f"{artifact.path} is a directory, which is not replaced in place",
            hint="Name a new directory with -o.",
        )


def _output(arguments: PackageOptions, path: Path) -> Path:
    """Where `instrument` writes: a package, or a directory of sources."""
    if arguments.output:
        return Path(arguments.output)
    return (
        path.with_name(f"{path.stem}.instrumented")
        if arguments.no_rebuild
        else (files.output_path(path))
    )


def _plain_output(arguments: OutputOptions, package: Package) -> Path:
    """Where `strip` writes. A directory of sources becomes a package."""
    if arguments.output:
        return Path(arguments.output)
    if package.is_sources:
        return package.path.with_name(f"{package.path.name.replace('.instrumented', '')}.pt2")
    return files.restored_path(package.path)


def _require_backup(path: Path, original: Path, *, overwrite: bool) -> None:
    """Check, before any work, that the original can be kept beside the package."""
    backup = files.backup_path(path.resolve())
    if backup.exists() and not (overwrite or _is_copy(backup, original)):
        raise RewriterError(
            "exists",
            f"{backup} exists already, and is not the original of {path}",
            hint="Pass --overwrite, or move it away.",
        )


def _is_copy(backup: Path, original: Path) -> bool:
    return backup.is_file() and filecmp.cmp(backup, original, shallow=False)


def _diff(arguments: OutputOptions, artifact: Artifact, after: dict[str, bytes]) -> str | None:
    if not arguments.diff:
        return None
    text = "".join(
        unified(wrapper.path.name, wrapper.source, after.get(wrapper.name, wrapper.source))
        for wrapper in artifact.wrappers
    )
    if not arguments.json:
        say_text(text, text_diff.style)
    return text


def _tell(
    arguments: PackageOptions,
    artifact: Artifact,
    probed: Sequence[Probed],
    delivered: Delivered,
    built: Built | None,
    seconds: float,
) -> None:
    for number, wrapper in enumerate(probed):
        text = f"{wrapper.model.name}: {summary(wrapper.result)}"
        if built is not None:
            chosen = built.recipes[number]
            text += f"; route {chosen.route}: {chosen.why}"
            for note in chosen.notes:
                message(f"  {note}")
        message(text)
    if built is not None:
        results = {
            "loaded": "loaded, and runs what was built",
            "linked": f"not loaded: {built.note}",
        }
        message(f"check: {results.get(built.check, built.check)}")
    where = delivered.tell(artifact.path)
    if arguments.no_rebuild and delivered.output:
        where += f"; sh {Path(delivered.output) / script.NAME} builds the package"
    message(f"{where} ({seconds:.1f} s)")
