"""Writes the results of several wrappers: all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter import write
from rewriter.transaction import Transaction


@dataclass(frozen=True)
class Replacement:
    """A file to replace, what it holds now, what it will, and its source without probes."""

    path: Path
    before: bytes
    after: bytes
    plain: bytes


def replace_all(files: Sequence[Replacement], *, overwrite: bool) -> list[Path | None]:
    """Replace files as `write.replace` does each; returns their backups.

    If one cannot be replaced, none is.
    """
    with Transaction(files[0].path) as changes:
        return [
            write.put_in_place(changes, file.path, file.after, file.plain, overwrite=overwrite)
            if file.before != file.after or file.after == file.plain
            else None
            for file in files
        ]


def write_folder(folder: Path, files: Sequence[tuple[str, bytes]], *, overwrite: bool) -> None:
    """Write files below a folder, which is made. If one cannot be written, none is.

    Raises `RewriterError` before the first is written where one exists with other contents, unless
    `overwrite` is given.
    """
    with Transaction(folder) as changes:
        for name, data in files:
            changes.make_folder((folder / name).parent)
            write.put(changes, folder / name, data, overwrite=overwrite)
