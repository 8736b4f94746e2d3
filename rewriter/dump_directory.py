"""Makes the directory that a dump goes to; one that holds something is left alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from rewriter.errors import RewriterError


def dump_directory(artifact: Path, wanted: str | Path | None, *, overwrite: bool) -> Path:
    """The directory to dump to, made now. One that holds something is only replaced if asked to."""
    try:
        if wanted is None:
            return _new_directory(Path(f"{artifact.stem}.dump"))
        path = Path(wanted).absolute()
        if require_free(path, overwrite=overwrite):
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RewriterError(
            "unwritable",
            f"cannot make the dump directory {error.filename}: {error.strerror}",
            hint="Pass another path with -d.",
        ) from error
    return path


def _new_directory(path: Path) -> Path:
    number = 1
    while True:
        try:
            (made := path if number == 1 else Path(f"{path}-{number}")).mkdir()
        except FileExistsError:
            number += 1
        else:
            return made.absolute()


def require_free(path: Path, *, overwrite: bool) -> bool:
    """Whether a dump has to make room. Raises where it must not, or where there is no dump."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    is_dump = path.is_dir() and (path / "manifest.json").is_file()
    if not is_dump:
        raise RewriterError(
            "exists", f"{path} exists and is no dump", hint="Pass another path with -d."
        )
    if not overwrite:
        raise RewriterError(
            "exists",
            f"{path} holds a dump already",
            hint="Pass --overwrite, or another path with -d.",
        )
    return True
