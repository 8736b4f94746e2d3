"""Writes results: a file whole or not at all, several together or none.

An existing file is replaced only if the caller allows it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.core.transaction import Transaction, is_scratch

BACKUP = ".orig"

# Files that show that this program wrote a directory for a package.
_OURS = ("sources.json", "rewriter/manifest.json", "*/rewriter/manifest.json")


def require_file(path: Path, *, hint: str) -> None:
    """Raise `RewriterError` where a named file is not there; `hint` says how to make it."""
    if not path.is_file():
        raise RewriterError("unreadable", f"cannot read {path}: no such file", hint=hint)


def output_path(path: Path) -> Path:
    """Where `instrument` writes without `-o`: `<stem>.instrumented<ext>` beside the input.

    If a file with such a name is instrumented again, it is replaced.
    """
    if path.stem.endswith(".instrumented") or path.suffix == ".instrumented":
        return path
    return path.with_name(f"{path.stem}.instrumented{path.suffix}")


def restored_path(path: Path) -> Path:
    """Where `strip` writes without `-o`.

    `x.instrumented.py` was made from `x.py`, which usually still exists beside it.
    """
    original = path.with_name(path.name.replace(".instrumented", ""))
    return path.with_name(f"{path.stem}.stripped{path.suffix}") if original == path else original


def backup_path(path: Path) -> Path:
    """Where `--in-place` keeps the file that it replaces."""
    return path.with_name(path.name + BACKUP)


def write(path: Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write a file atomically. Raises `RewriterError` if it exists or cannot be written.

    A file that already has the content `data` is left alone.
    """
    with Transaction(path) as changes:
        put(changes, path, data, overwrite=overwrite)


def put(
    changes: Transaction,
    path: Path,
    data: bytes,
    *,
    overwrite: bool = False,
    mode: int | None = None,
) -> None:
    """As `write`, but as one of the changes of a transaction."""
    path = changes.about(_resolved(path))
    if not (path.is_file() and path.read_bytes() == data):
        require_free(path, overwrite=overwrite)
        changes.stage(path, mode=_umasked() if mode is None else mode).write_bytes(data)


@contextmanager
def atomic_output(
    path: Path, *, overwrite: bool = False, directory: bool = False
) -> Iterator[Path]:
    """Yield a temporary path for a large file or a directory, which replaces `path` at the end.

    For results that are not held in memory. If the body raises, the temporary path is removed.
    Raises `RewriterError` before the body if `path` cannot be written: it exists and `overwrite` is
    not set, is not a file, or is a directory that this program did not make.
    """
    with Transaction(path) as changes:
        yield stage(changes, path, overwrite=overwrite, directory=directory)


def stage(
    changes: Transaction, path: Path, *, overwrite: bool = False, directory: bool = False
) -> Path:
    """As `atomic_output`, but as one of the changes of a transaction."""
    # If the path is a link, the file is replaced that it points to.
    path = changes.about(_resolved(path))
    mode = None if directory else _umasked()
    if path.exists():
        _require_replaceable(path, overwrite=overwrite, directory=directory)
        mode = None if directory else path.stat().st_mode
    return changes.stage(path, is_folder=directory, mode=mode)


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise `RewriterError` if `write` would refuse a file, before long work is done for it."""
    if path.exists():
        _require_replaceable(path, overwrite=overwrite, directory=False)


def _require_replaceable(path: Path, *, overwrite: bool, directory: bool) -> None:
    if not directory:
        _require_regular(path)
    elif not path.is_dir() or not any(next(path.glob(name), None) for name in _OURS):
        raise _exists_as_folder(path)
    if not overwrite:
        raise _exists(path)


def _exists(path: Path) -> RewriterError:
    return RewriterError(
        "exists",
        f"{path} exists already",
        hint="Pass --overwrite, or another path with -o.",
    )


def _exists_as_folder(path: Path) -> RewriterError:
    return RewriterError(
        "exists",
        f"{path} exists, and is no directory that rewriter made",
        hint="Pass another path with -o.",
    )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # links that form a cycle
        raise RewriterError(
            "unwritable", f"cannot write {path}: {error}", hint="Pass another path with -o."
        ) from error


def _require_regular(path: Path) -> None:
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no regular file"
        raise RewriterError("unwritable", f"{path} is {kind}", hint="Name a file to write with -o.")


def put_in_place(
    changes: Transaction, path: Path, data: bytes, original: bytes, *, overwrite: bool = False
) -> Path | None:
    """Replace a file, keeping the original beside it, as one of the changes of a transaction.

    Returns the path of the backup. It keeps `original` whatever happens to `path` later. Once
    `path` is the original again, the backup is removed, and `None` is returned. An existing backup
    of something else is an error unless `overwrite` is set.
    """
    path = _resolved(path)
    _require_regular(path)
    backup = backup_path(path)
    mode = path.stat().st_mode
    if data != original:
        put(changes, backup, original, overwrite=overwrite, mode=mode)
    put(changes, path, data, overwrite=True, mode=mode)
    if data != original:
        return backup
    if backup.is_file() and backup.read_bytes() == original:
        changes.remove(backup)
    return None


def write_copy(root: Path, folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
    """Write a copy of a directory in which some files have new contents.

    Leaves out backups and hidden folders of this program. Raises `RewriterError` if `folder` exists
    or is inside `root`.
    """
    if _resolved(folder).is_relative_to(root.resolve()):
        raise RewriterError(
            "unwritable",
            f"{folder} is inside of {root}, and cannot be a copy of it",
            hint="Pass another path with -o.",
        )
    with Transaction(folder) as changes:
        changes.make_folder(_resolved(folder).parent)
        if folder.exists():
            raise _exists_as_folder(folder)
        copy = stage(changes, folder, directory=True)
        shutil.copytree(root, copy, symlinks=True, ignore=_ours)
        for name, data in files:
            (copy / name).write_bytes(data)


def _ours(folder: str, names: list[str]) -> list[str]:
    """The files that this program added beside files that it changed."""
    there = set(names)
    return [
        name
        for name in names
        if is_scratch(Path(name)) or (name.endswith(BACKUP) and name[: -len(BACKUP)] in there)
    ]


def _umasked() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
