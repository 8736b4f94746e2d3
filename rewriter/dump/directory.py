"""Makes the directory for a dump, and leaves alone one that has other files in it."""

from __future__ import annotations

from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.core.transaction import Transaction, unwritable

# A whole diagnosis is a directory of dumps, and of this file once it ended.
DIAGNOSIS = "diagnosis.json"
_RUNS = ("values", "crash", "health")  # the one that recorded most first


def dump_directory(
    artifact: Path, wanted: str | Path | None, *, overwrite: bool, suffix: str = ".dump"
) -> Path:
    """Make the directory for a dump. One that has files is only replaced with `overwrite`: without,
    and if no directory is `wanted`, it is another one."""
    if wanted is None and not overwrite:
        return _new_directory(Path(f"{artifact.stem}{suffix}"))
    path = Path(wanted or f"{artifact.stem}{suffix}").absolute()
    with Transaction(path) as changes:
        changes.about(path.resolve())
        if require_free(path, overwrite=overwrite):
            # Renamed in one step: a dump that is half removed would not be a dump.
            changes.stage(path.resolve(), is_folder=True).mkdir()
        else:
            changes.make_folder(path)
    return path


def _new_directory(path: Path) -> Path:
    number = 1
    while True:
        try:
            (made := path if number == 1 else Path(f"{path}-{number}")).mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise unwritable(made, error) from error
        else:
            return made.absolute()


def of_diagnosis(path: Path) -> Path:
    """Of the directory of a diagnosis, also of one that was interrupted, the dump of the run that
    recorded most; any other path as it is."""
    return next((path / x for x in _RUNS if _is_one(path / x)), path)


def _is_one(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _is_interrupted(path: Path) -> bool:
    """Whether a directory has what a diagnosis that did not end leaves, and nothing else."""
    return path.is_dir() and all(x.name in _RUNS and _is_one(x) for x in path.iterdir())


def require_free(path: Path, *, overwrite: bool) -> bool:
    """Whether a dump has to be replaced. Raises if it must not be, or if it is not a dump."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    is_dump = _is_one(path) or (path / DIAGNOSIS).is_file() or _is_interrupted(path)
    if is_dump and overwrite:
        return True
    what = "holds a dump already" if is_dump else "exists and is no dump"
    hint = "Pass --overwrite, or another path with -d." if is_dump else "Pass another path with -d."
    raise RewriterError("exists", f"{path} {what}", hint=hint)
