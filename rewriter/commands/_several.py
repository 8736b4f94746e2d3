"""`instrument` and `strip` of directories and logs: what several wrappers have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.commands import _pairs
from rewriter.commands._output import Delivered, unified
from rewriter.core import text_diff
from rewriter.core.errors import RewriterError
from rewriter.core.files import Replacement, replace_all, write_folder
from rewriter.core.terminal import say_text
from rewriter.core.text import counted

_LEAVE_OUT = "Or leave this wrapper out: --wrapper takes the names of others, and patterns."


@dataclass(frozen=True)
class Result:
    """What becomes of a wrapper; `plain` is its source without probes."""

    wrapper: OpenWrapper
    after: bytes
    plain: bytes


def applies(arguments: argparse.Namespace, artifact: Artifact) -> bool:
    """Whether results go to a folder, or to several files, and not to one file."""
    if artifact.package is not None:
        return False
    if len(artifact.wrappers) != 1 or artifact.damaged:
        return True
    wrapper = artifact.only
    if arguments.output:
        is_folder = Path(arguments.output).suffix != wrapper.path.suffix
        is_among_others = artifact.path.is_dir() or wrapper.inside is not None
        return bool(is_among_others and is_folder and arguments.output != "-")
    return wrapper.inside is not None


def require_target(arguments: argparse.Namespace, artifact: Artifact) -> None:
    """Refuse what cannot be delivered, before work is done for it."""
    with among_others():
        artifact.require_sound()
    if arguments.output == "-":
        raise artifact.several("Standard output takes one: choose it with --wrapper.")
    traced = next((one for one in artifact.wrappers if one.inside is not None), None)
    shown = arguments.check or arguments.diff
    if traced is not None and (arguments.in_place or not (arguments.output or shown)):
        raise RewriterError(
            "read-only-trace",
            f"{traced.name} stands in {traced.inside}, which is a record and stays as it is",
            hint="Pass -o with a directory for the results.",
        )
    if not (arguments.output or arguments.in_place or shown):
        raise artifact.several(
            "Pass -o with a directory for all of them, or --in-place; or choose one with "
            "--wrapper, which takes a name, a pattern, or forward, backward, inference."
        )


@contextmanager
def among_others() -> Iterator[None]:
    """Say of an error of one wrapper that the others can do without it."""
    try:
        yield
    except RewriterError as error:
        error.hint = f"{error.hint}\n  {_LEAVE_OUT}".strip()
        raise


def deliver(arguments: argparse.Namespace, results: Sequence[Result]) -> list[Delivered]:
    """Write results where the options say: all, or none if one cannot be written."""
    caches = [_pairs.cache_with(one.wrapper) for one in results]
    diffs = [
        unified(one.wrapper.name, one.wrapper.source, one.after) if arguments.diff else None
        for one in results
    ]
    if not arguments.json:
        say_text("".join(filter(None, diffs)), text_diff.style)
    changed = [one.wrapper.source != one.after for one in results]
    backups: list[Path | None] = [None] * len(results)
    outputs: list[Path | None] = [None] * len(results)
    if arguments.check or not (arguments.output or arguments.in_place):
        pass
    elif arguments.in_place:
        outputs = [one.wrapper.path for one in results]
        replaced = [
            Replacement(one.wrapper.path, one.wrapper.source, one.after, one.plain)
            for one in results
        ]
        for one, cache in zip(results, caches, strict=True):
            replaced += _pairs.replacements(cache, one.after, one.plain)
        backups = replace_all(replaced, overwrite=arguments.overwrite)[: len(results)]
    else:
        folder = Path(arguments.output)
        outputs = [folder / one.wrapper.name for one in results]
        _require_apart(folder, results)
        files = [file for one in results for file in _files(one)]
        for one, cache in zip(results, caches, strict=True):
            beside = _pairs.files_beside(cache, Path(one.wrapper.name), one.after)
            files += [(str(name), data) for name, data in beside]
        write_folder(folder, files, overwrite=arguments.overwrite)
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


def where(arguments: argparse.Namespace, delivered: Sequence[Delivered]) -> str:
    """The end of a message about all results."""
    count = sum(one.changed for one in delivered)
    if not any(one.output for one in delivered):
        return f"would change {count} of {len(delivered)} wrappers"
    if arguments.in_place:
        kept = sum(one.backup is not None for one in delivered)
        return f"{counted(count, 'wrapper')} changed in place" + (
            f", {kept} originals kept" if kept else ""
        )
    return f"{counted(len(delivered), 'wrapper')} in {arguments.output}"


def _files(result: Result) -> list[tuple[str, bytes]]:
    """A result, and the meanings of its operators, which are looked for beside it."""
    files = [(result.wrapper.name, result.after)]
    beside = result.wrapper.path.with_suffix(".json")
    if result.wrapper.operators and beside.is_file():
        name = Path(result.wrapper.name).with_suffix(".json").as_posix()
        files.append((name, beside.read_bytes()))
    return files


def _require_apart(folder: Path, results: Sequence[Result]) -> None:
    """Refuse to write over what the results are made from."""
    sources = {one.wrapper.path.resolve() for one in results}
    for one in results:
        if (folder / one.wrapper.name).resolve() in sources:
            raise RewriterError(
                "exists",
                f"-o {folder} is the directory that {one.wrapper.name} comes from",
                hint="Pass another directory, or --in-place, which keeps the originals.",
            )
