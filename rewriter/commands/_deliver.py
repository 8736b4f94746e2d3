"""Writes what `instrument` and `strip` made of an artifact, where the options say."""

from __future__ import annotations

import filecmp
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.artifact.types import Artifact, NewFile
from rewriter.commands._options import OutputOptions
from rewriter.commands._output import unified
from rewriter.core import files
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.core.terminal import message, say_text
from rewriter.core.text import counted
from rewriter.core.transaction import Transaction

if TYPE_CHECKING:
    from rewriter.core.documents import BackupPath, CachePath, Diff, OutputPath

_LEAVE_OUT = "Or leave this wrapper out: --wrapper takes the names of others, and patterns."


@printed("changed output backup diff cache")
@dataclass(frozen=True)
class Delivered:
    """Where results went. `each` says the same of each wrapper, by its name; those of several files
    have no common `backup` and `cache`."""

    changed: bool
    output: OutputPath = None
    backup: BackupPath = None
    diff: Diff = None
    cache: CachePath = None
    each: Mapping[str, Delivered] = field(default_factory=dict)
    is_several: bool = False

    @property
    def is_written(self) -> bool:
        return self.output is not None or any(wrapper.output for wrapper in self.each.values())

    def tell(self, path: Path) -> str:
        """The end of a message about the results."""
        if self.is_several:
            return self._tell_several()
        if self.output is None:
            return f"would change {path}" if self.changed else f"{path} would stay as it is"
        where = "standard output" if self.output == "-" else self.output
        where = f"{where}, with {self.cache}" if self.cache else where
        return f"{where}, original kept in {self.backup}" if self.backup else where

    def _tell_several(self) -> str:
        count = sum(wrapper.changed for wrapper in self.each.values())
        if not self.is_written:
            return f"would change {count} of {len(self.each)} wrappers"
        if self.output is not None:
            return f"{counted(len(self.each), 'wrapper')} in {self.output}"
        kept = sum(wrapper.backup is not None for wrapper in self.each.values())
        return f"{counted(count, 'wrapper')} changed in place" + (
            f", {kept} originals kept" if kept else ""
        )


@dataclass
class BuiltPackage:
    """A package, or a directory of sources, that `write` makes where it gets a path.

    `write` returns whether the result is exact. `original` is the file without probes, or `None` if
    the result is that.
    """

    path: Path
    changed: bool
    wrappers: Sequence[str]
    write: Callable[[Path], bool]
    original: Path | None = None
    is_folder: bool = False
    exact: bool = True
    paired: Sequence[NewFile] = ()

    def put(self, changes: Transaction, path: Path, *, overwrite: bool) -> None:
        self._write(files.stage(changes, path, overwrite=overwrite, directory=self.is_folder))

    def put_in_place(self, changes: Transaction, *, overwrite: bool) -> Path | None:
        backup = files.backup_path(self.path.resolve())
        if self.original is not None:
            if backup.exists() and not (overwrite or _is_copy(backup, self.original)):
                raise RewriterError(
                    "exists",
                    f"{backup} exists already, and is not the original of {self.path}",
                    hint="Pass --overwrite, or move it away.",
                )
            # Staged before the package: if this is interrupted in between, the backup exists.
            shutil.copyfile(self.original, changes.stage(backup, mode=self.path.stat().st_mode))
            self.put(changes, self.path, overwrite=True)
            return backup
        plain = changes.about(self.path.resolve())
        if self.changed:
            plain = files.stage(changes, self.path, overwrite=True)
            self._write(plain)
        if _is_copy(backup, plain):
            changes.remove(backup)
        return None

    def default(self, path: Path) -> Path:
        """Where `strip` writes without `-o`. A directory of sources becomes a package."""
        if path.is_dir() and not self.is_folder:
            return path.with_name(f"{path.name.replace('.instrumented', '')}.pt2")
        return files.restored_path(path)

    def _write(self, path: Path) -> None:
        self.exact = self.write(path)
        if not self.exact:
            message(
                f"warning: {self.path} was changed or packed again after it was instrumented: "
                "the probes are gone, the changes stay"
            )


Made = NewFile | BuiltPackage


def _is_copy(backup: Path, original: Path) -> bool:
    return backup.is_file() and filecmp.cmp(backup, original, shallow=False)


def only_shows(arguments: OutputOptions) -> bool:
    """Whether the options ask to see what would change, and nothing is to be written."""
    placed = arguments.output or arguments.in_place
    return bool(arguments.check or (arguments.diff and not placed))


def require_target(arguments: OutputOptions, artifact: Artifact, *, probing: bool = False) -> None:
    """Refuse outputs that cannot be written, before any work."""
    with among_others(artifact):
        artifact.require_sound()
    artifact.require_target(
        arguments.output,
        in_place=arguments.in_place,
        shown=only_shows(arguments),
        probing=probing,
    )
    if arguments.output == "-" and (arguments.json or arguments.diff):
        raise RewriterError(
            "two-outputs",
            f"-o - and {'--json' if arguments.json else '--diff'} both print to standard output",
            hint="Name a file with -o.",
        )


@contextmanager
def among_others(artifact: Artifact) -> Iterator[None]:
    """Add to errors of one of several wrappers a hint that it can be left out."""
    try:
        yield
    except RewriterError as error:
        if len(artifact.wrappers) + len(artifact.damaged) > 1 and not artifact.is_rebuilt:
            error.hint = f"{error.hint}\n  {_LEAVE_OUT}".strip()
        raise


def deliver(
    arguments: OutputOptions,
    artifact: Artifact,
    sources: Mapping[str, bytes],
    default: Callable[[Path], Path],
    built: BuiltPackage | None = None,
) -> Delivered:
    """Write wrappers with new sources, given by name, where the options say: all, or none if one
    cannot be written.

    `--diff` prints the difference, and writes nothing unless an output is named; `--check` never
    writes. `default` makes the path of the result from that of the file that changes. What is not
    edited was `built`.
    """
    new = artifact.rewritten(sources) if built is None else ()
    for warning in (file.warning for file in new if file.warning):
        message(warning)
    made: Sequence[Made] = new if built is None else (built,)
    each = {}
    for wrapper in artifact.wrappers:
        if (source := sources.get(wrapper.name)) is not None:
            title = artifact.title(wrapper)
            diff = unified(title, wrapper.source, source) if arguments.diff else None
            each[wrapper.name] = Delivered(wrapper.source != source, diff=diff)
    diff = "".join(delivered.diff or "" for delivered in each.values()) if arguments.diff else None
    if diff and not arguments.json:
        from rewriter.core import text_diff

        say_text(diff, text_diff.style)
    is_one = artifact.makes_one(arguments.output)
    whole = Delivered(any(file.changed for file in made), diff=diff)
    if only_shows(arguments):
        places = [whole for _ in made]
    elif arguments.in_place:
        places = _put_in_place(made, whole, overwrite=arguments.overwrite)
    elif arguments.output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(new[0].after)
        places = [replace(whole, output="-")]
    elif is_one:
        target = Path(arguments.output) if arguments.output else default(made[0].path)
        places = [_put(made[0], target, whole, overwrite=arguments.overwrite)]
    else:
        places = _put_in_folder(arguments, artifact, new, whole)
    for file, place in zip(made, places, strict=True):
        for name in file.wrappers:
            one = each[name]
            each[name] = replace(place, changed=one.changed, diff=one.diff)
    if is_one:
        return replace(places[0], each=each)
    written = None if only_shows(arguments) else arguments.output
    return replace(whole, output=written, each=each, is_several=True)


def _put_in_place(made: Sequence[Made], whole: Delivered, *, overwrite: bool) -> list[Delivered]:
    places = []
    with Transaction(made[0].path) as changes:
        for file in made:
            # Of several, one that keeps its probes as they are is left alone, as is its backup.
            if len(made) > 1 and isinstance(file, NewFile) and file.keeps_probes:
                places.append(_place(file, file.path, whole))
                continue
            backup = file.put_in_place(changes, overwrite=overwrite)
            for other in file.paired:
                other.put_in_place(changes, overwrite=overwrite)
            places.append(_place(file, file.path, whole, backup))
    return places


def _put(file: Made, target: Path, whole: Delivered, *, overwrite: bool) -> Delivered:
    for other in file.paired:
        if target.suffix == other.path.suffix:
            raise RewriterError(
                "two-outputs",
                f"-o {target} is the name for the cache of the pair, not for its code",
                hint=f"Name the code: {target.with_suffix(file.path.suffix)}",
            )
    with Transaction(target) as changes:
        file.put(changes, target, overwrite=overwrite)
        for other in file.paired:
            other.put(changes, target.with_suffix(other.path.suffix), overwrite=overwrite)
    return _place(file, target, whole)


def _put_in_folder(
    arguments: OutputOptions, artifact: Artifact, made: Sequence[NewFile], whole: Delivered
) -> list[Delivered]:
    """Write files to a directory: beside others, or in a copy of a directory that is loaded as a
    whole."""
    assert arguments.output is not None
    folder = Path(arguments.output)
    if artifact.is_copied_whole:
        new = [(name, each.after) for file in made for name, each in _named(file)]
        files.write_copy(artifact.path, folder, new)
        if artifact.form.note:
            message(artifact.form.note)
        return [_place(file, folder / file.name, whole) for file in made]
    _require_apart(folder, made)
    with Transaction(folder) as changes:
        for file in made:
            target = folder / file.name
            changes.make_folder(target.parent)
            for name, new_file in _named(file):
                new_file.put(changes, folder / name, overwrite=arguments.overwrite)
            for path in file.beside:
                beside = target.with_suffix(path.suffix)
                files.put(changes, beside, path.read_bytes(), overwrite=arguments.overwrite)
    return [_place(file, folder / file.name, whole) for file in made]


def _named(file: NewFile) -> Iterator[tuple[str, NewFile]]:
    """A file and those of its pair, with their names in a directory for results."""
    yield file.name, file
    for other in file.paired:
        yield Path(file.name).with_suffix(other.path.suffix).as_posix(), other


def _place(file: Made, path: Path, whole: Delivered, backup: Path | None = None) -> Delivered:
    caches = [str(path.with_suffix(other.path.suffix)) for other in file.paired]
    kept = None if backup is None else str(backup)
    return replace(whole, output=str(path), backup=kept, cache=next(iter(caches), None))


def _require_apart(folder: Path, made: Sequence[NewFile]) -> None:
    """Refuse to overwrite the wrappers that the results are made from."""
    sources = {file.path.resolve() for file in made}
    for file in made:
        if (folder / file.name).resolve() in sources:
            raise RewriterError(
                "exists",
                f"-o {folder} is the directory that {file.name} comes from",
                hint="Pass another directory, or --in-place, which keeps the originals.",
            )
