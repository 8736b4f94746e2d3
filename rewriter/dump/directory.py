"""Makes the directory for a dump, and leaves alone one that has other files in it."""

from __future__ import annotations

from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.core.transaction import Transaction, unwritable

# A directory of dumps has this file: it is a whole diagnosis.
DIAGNOSIS = "diagnosis.json"


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


def require_free(path: Path, *, overwrite: bool) -> bool:
    """Whether a dump has to be replaced. Raises if it must not be, or if it is not a dump."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    is_dump = path.is_dir() and any((path / x).is_file() for x in ("manifest.json", DIAGNOSIS))
    if is_dump and overwrite:
        return True
    what = "holds a dump already" if is_dump else "exists and is no dump"
    hint = "Pass --overwrite, or another path with -d." if is_dump else "Pass another path with -d."
    raise RewriterError("exists", f"{path} {what}", hint=hint)
