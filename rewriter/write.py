"""Writes results: whole or not at all, and over nothing that was not offered."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.errors import RewriterError

BACKUP = ".orig"

# What is in each directory that is written for a package.
_OURS = ("sources.json", "rewriter/manifest.json", "*/rewriter/manifest.json")


def output_path(path: Path) -> Path:
    """Where `instrument` writes without `-o`: `<stem>.instrumented<ext>` beside the input.

    A file of such a name, whose probes are exchanged, is its own output.
    """
    if path.stem.endswith(".instrumented"):
        return path
    return path.with_name(f"{path.stem}.instrumented{path.suffix}")


def restored_path(path: Path) -> Path:
    """Where `strip` writes without `-o`.

    `x.instrumented.py` came from `x.py`, which usually still stands beside it.
    """
    original = path.with_name(path.name.replace(".instrumented", ""))
    return path.with_name(f"{path.stem}.stripped{path.suffix}") if original == path else original


def backup_path(path: Path) -> Path:
    """Where `--in-place` keeps what it replaces."""
    return path.with_name(path.name + BACKUP)


def write(path: Path, data: bytes, *, overwrite: bool = False, mode: int | None = None) -> None:
    """Write a file atomically. Raises `RewriterError` where it exists or cannot be written.

    A file that holds `data` already is left alone.
    """
    temporary = ""
    try:
        # The file that a link points to is meant, not the link.
        path = path.resolve()
        if path.exists():
            _require_regular(path)
            if path.read_bytes() == data:
                return
            if not overwrite:
                raise _exists(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _umasked() if mode is None else mode)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if not isinstance(error, (OSError, RuntimeError)):
            raise
        raise _unwritable(path, error) from error


@contextmanager
def whole(path: Path, *, overwrite: bool = False, directory: bool = False) -> Iterator[Path]:
    """Give a path to write a large file or a directory to, and put it in the place of `path`.

    For what is not held in memory. Nothing is left of it if the body raises. Raises
    `RewriterError` before the body where `path` cannot be written: it exists and `overwrite` is not
    given, is no file, or is a directory that this program did not make.
    """
    try:
        path = path.resolve()
        if path.exists():
            _require_replaceable(path, overwrite=overwrite, directory=directory)
        folder = tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, error) from error
    with folder as name:
        temporary = Path(name) / path.name
        yield temporary
        try:
            if directory and path.exists():
                os.rename(path, Path(name) / "before")
            if not directory:
                temporary.chmod(path.stat().st_mode if path.exists() else _umasked())
            os.replace(temporary, path)
        except OSError as error:
            raise _unwritable(path, error) from error


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise `RewriterError` where `write` would refuse a file: before long work is done for it."""
    if path.exists():
        _require_replaceable(path, overwrite=overwrite, directory=False)


def _require_replaceable(path: Path, *, overwrite: bool, directory: bool) -> None:
    if not directory:
        _require_regular(path)
    elif not path.is_dir() or not any(next(path.glob(name), None) for name in _OURS):
        raise RewriterError(
            "exists",
            f"{path} exists, and is no directory that rewriter made",
            hint="Pass another path with -o.",
        )
    if not overwrite:
        raise _exists(path)


def _exists(path: Path) -> RewriterError:
    return RewriterError(
        "exists",
        f"{path} exists already",
        hint="Pass --overwrite, or another path with -o.",
    )


def _unwritable(path: Path, error: Exception) -> RewriterError:
    return RewriterError(
        "unwritable",
        f"cannot write {path}: {getattr(error, 'strerror', error)}",
        hint="Check that the folder exists and may be written, or pass another path with -o.",
    )


def _require_regular(path: Path) -> None:
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no regular file"
        raise RewriterError("unwritable", f"{path} is {kind}", hint="Name a file to write with -o.")


def replace(path: Path, data: bytes, original: bytes, *, overwrite: bool = False) -> Path | None:
    """Replace a file in place, keeping the original beside it.

    Returns the path of the backup. It holds `original` whatever happens to `path` later, and is
    removed, with `None` returned, once `path` is the original again. A backup of something else
    is an error unless `overwrite` is given.
    """
    path = path.resolve()
    _require_regular(path)
    backup = backup_path(path)
    mode = path.stat().st_mode
    if data != original:
        write(backup, original, overwrite=overwrite, mode=mode)
    write(path, data, overwrite=True, mode=mode)
    if data != original:
        return backup
    if backup.is_file() and backup.read_bytes() == original:
        backup.unlink()
    return None


def _umasked() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
