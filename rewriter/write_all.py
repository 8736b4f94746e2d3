"""Writes the results of several wrappers: all of them or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewriter import write
from rewriter.errors import RewriterError


@dataclass(frozen=True)
class Replacement:
    """A file to replace, what it holds now, what it will, and its source without probes."""

    path: Path
    before: bytes
    after: bytes
    plain: bytes


def replace_all(files: Sequence[Replacement], *, overwrite: bool) -> list[Path | None]:
    """Replace files as `write.replace` does each; returns their backups.

    If one cannot be replaced, the others are put back, and no backup stays.
    """
    changed = [file for file in files if file.before != file.after]
    touched = [path for file in changed for path in (file.path, write.backup_path(file.path))]
    with _put_back(touched):
        backups = {
            file.path: write.replace(file.path, file.after, file.plain, overwrite=overwrite)
            for file in changed
        }
    return [backups.get(file.path) for file in files]


def write_folder(folder: Path, files: Sequence[tuple[str, bytes]], *, overwrite: bool) -> None:
    """Write files below a folder, which is made. If one cannot be written, none is.

    Raises `RewriterError` before the first is written where one exists with other contents, unless
    `overwrite` is given.
    """
    targets = [(folder / name, data) for name, data in files]
    for target, data in targets:
        if not (target.is_file() and target.read_bytes() == data):
            write.require_free(target, overwrite=overwrite)
    with _put_back([target for target, _ in targets]):
        for target, data in targets:
            _make_folder(target.parent)
            write.write(target, data, overwrite=overwrite)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RewriterError(
            "unwritable",
            f"cannot make the folder {folder}: {error.strerror}",
            hint="Pass another path with -o.",
        ) from error


@contextmanager
def _put_back(paths: Sequence[Path]) -> Iterator[None]:
    """Give files back what they hold now if the body raises; what was not there goes away."""
    before = {path: path.read_bytes() if path.is_file() else None for path in paths}
    missing = {
        folder for path in paths for folder in path.parents if not folder.exists() and folder.name
    }
    try:
        yield
    except BaseException:
        for path, data in before.items():
            if data is None:
                if path.exists():
                    path.unlink()
            elif path.read_bytes() != data:
                write.write(path, data, overwrite=True, mode=path.stat().st_mode)
        for folder in sorted(missing, reverse=True):
            if folder.is_dir():
                folder.rmdir()
        raise
