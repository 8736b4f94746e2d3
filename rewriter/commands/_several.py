"""`instrument` and `strip` of several wrappers at once, in directories and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.saved_directory import INDEX, VLLM
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands import _pairs
from rewriter.commands._options import OutputOptions
from rewriter.commands._output import Delivered, unified
from rewriter.core import text_diff
from rewriter.core.errors import RewriterError
from rewriter.core.files import Replacement, replace_all, write_copy, write_folder
from rewriter.core.terminal import message, say_text
from rewriter.core.text import counted
from rewriter.instrumentation import containers

_LEAVE_OUT = "Or leave this wrapper out: --wrapper takes the names of others, and patterns."


@dataclass(frozen=True)
class Result:
    """The new source of a wrapper; `plain` is the one without probes."""

    wrapper: Wrapper
    after: bytes
    plain: bytes

    @property
    def file(self) -> Path:
        """The file that changes."""
        wrapper = self.wrapper
        return wrapper.path if wrapper.stored is None else wrapper.inside or wrapper.path

    @property
    def source(self) -> bytes:
        return self.after

    @property
    def original(self) -> bytes:
        return self.plain


def require_target(arguments: OutputOptions, artifact: Artifact) -> None:
    """Refuse outputs that cannot be written, before any work."""
    with among_others():
        artifact.require_sound()
    if arguments.output == "-":
        raise artifact.several("Standard output takes one: choose it with --wrapper.")
    inside = (
        wrapper
        for wrapper in artifact.wrappers
        if wrapper.inside is not None and wrapper.stored is None
    )
    traced = next(inside, None)
    shown = arguments.check or arguments.diff
    if traced is not None and (arguments.in_place or not (arguments.output or shown)):
        raise RewriterError(
            "read-only-trace",
            f"{traced.name} stands in {traced.inside}, which is a record and stays as it is",
            hint="Pass -o with a directory for the results.",
        )
    if artifact.directory is not None and not (arguments.output or arguments.in_place or shown):
        raise RewriterError(
            "no-target",
            f"{artifact.path} is {artifact.directory.description}, which is loaded as a whole",
            hint="Pass -o with a new directory for a copy of all of it, or --in-place.",
        )
    if not (arguments.output or arguments.in_place or shown):
        raise artifact.several(
            "Pass -o with a directory for all of them, or --in-place; or choose one with "
            "--wrapper, which takes a name, a pattern, or forward, backward, inference."
        )


@contextmanager
def among_others() -> Iterator[None]:
    """Add to errors of one wrapper a hint that it can be left out."""
    try:
        yield
    except RewriterError as error:
        error.hint = f"{error.hint}\n  {_LEAVE_OUT}".strip()
        raise


def deliver(
    arguments: OutputOptions, artifact: Artifact, results: Sequence[Result]
) -> list[Delivered]:
    """Write results where the options say: all, or none if one cannot be written.

    If torch loads the directory as a whole, all of it is copied.
    """
    caches = [_pairs.cache_with(result.wrapper) for result in results]
    diffs = [
        unified(result.wrapper.name, result.wrapper.source, result.after)
        if arguments.diff
        else None
        for result in results
    ]
    if not arguments.json:
        say_text("".join(filter(None, diffs)), text_diff.style)
    changed = [result.wrapper.source != result.after for result in results]
    backups: list[Path | None] = [None] * len(results)
    outputs: list[Path | None] = [None] * len(results)
    if arguments.check:
        pass
    elif arguments.in_place:
        outputs = [result.file for result in results]
        replaced = _replacements(artifact, results)
        for result, cache in zip(results, caches, strict=True):
            replaced += _pairs.replacements(cache, result.after, result.plain)
        kept = replace_all(replaced, overwrite=arguments.overwrite)
        backup_of = {
            replacement.path: backup for replacement, backup in zip(replaced, kept, strict=True)
        }
        backups = [backup_of[result.file] for result in results]
    elif arguments.output:
        folder = Path(arguments.output)
        names = [_name(artifact, result) for result in results]
        outputs = [folder / name for name in names]
        after = {
            replacement.path: replacement.after for replacement in _replacements(artifact, results)
        }
        files = [(name, after[result.file]) for name, result in zip(names, results, strict=True)]
        for name, result, cache in zip(names, results, caches, strict=True):
            files += _operators(result.wrapper, name)
            beside = _pairs.files_beside(cache, Path(name), result.after)
            files += [(str(path), data) for path, data in beside]
        if artifact.directory is None:
            _require_apart(folder, results)
            write_folder(folder, files, overwrite=arguments.overwrite)
        else:
            write_copy(artifact.path, folder, files)
            if artifact.directory is VLLM:
                message(
                    f"note: {INDEX} names artifacts by absolute paths: vLLM takes those of the "
                    "copy only if it replaces the original"
                )
    return [
        Delivered(
            change,
            _text(output),
            _text(backup),
            diff,
            None if output is None else _pairs.path_beside(cache, output),
        )
        for change, output, backup, diff, cache in zip(
            changed, outputs, backups, diffs, caches, strict=True
        )
    ]


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def where(arguments: OutputOptions, delivered: Sequence[Delivered]) -> str:
    """The end of a message about all results."""
    count = sum(delivery.changed for delivery in delivered)
    if not any(delivery.output for delivery in delivered):
        return f"would change {count} of {len(delivered)} wrappers"
    if arguments.in_place:
        kept = sum(delivery.backup is not None for delivery in delivered)
        return f"{counted(count, 'wrapper')} changed in place" + (
            f", {kept} originals kept" if kept else ""
        )
    return f"{counted(len(delivered), 'wrapper')} in {arguments.output}"


def _replacements(artifact: Artifact, results: Sequence[Result]) -> list[Replacement]:
    """The files that change, each once: a file may hold several wrappers."""
    groups: dict[Path, list[Result]] = {}
    for result in results:
        groups.setdefault(result.file, []).append(result)
    inside = {one.path: one for one in artifact.contained}
    replaced = []
    for path, group in groups.items():
        if container := inside.get(path):
            assert container.container is not None
            before = container.container.contents.data
            after = containers.probed(container, [(result.wrapper, result) for result in group])
            replaced.append(Replacement(path, before, after, containers.plain(container)))
        else:
            (one,) = group
            replaced.append(Replacement(path, one.wrapper.source, one.after, one.plain))
    return replaced


def _name(artifact: Artifact, result: Result) -> str:
    """The path of a result below the output directory; in a copy, the path of the original."""
    if artifact.directory is None:
        return result.wrapper.name
    return result.file.relative_to(artifact.path).as_posix()


def _operators(wrapper: Wrapper, name: str) -> list[tuple[str, bytes]]:
    """The operators file of a wrapper, which has to be beside it."""
    beside = wrapper.path.with_suffix(".json")
    if not wrapper.operators or not beside.is_file():
        return []
    return [(Path(name).with_suffix(".json").as_posix(), beside.read_bytes())]


def _require_apart(folder: Path, results: Sequence[Result]) -> None:
    """Refuse to overwrite the wrappers that the results are made from."""
    sources = {result.wrapper.path.resolve() for result in results}
    for result in results:
        if (folder / result.wrapper.name).resolve() in sources:
            raise RewriterError(
                "exists",
                f"-o {folder} is the directory that {result.wrapper.name} comes from",
                hint="Pass another directory, or --in-place, which keeps the originals.",
            )
