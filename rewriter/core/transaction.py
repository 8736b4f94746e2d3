"""Makes several changes to files, either all of them or none.

New contents are first written to a hidden folder beside each file. Then everything is renamed into
place, which needs no disk space and can be undone. At every moment each file is complete, in its
old or new version.

A command that is killed leaves its hidden folders behind. Each is locked while its process lives,
so the next command that writes there can tell, and removes those of dead processes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rewriter.core import locks
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.signals import held_back

_NAME = re.compile(r"\.rewriter-\d+-[0-9a-f]{8}")
# The contents of a hidden folder: new contents of files, old contents, and files to remove.
_NEW, _OLD, _GONE = "new", "old", "gone"


def is_scratch(path: Path) -> bool:
    """Whether a path leads into the hidden folder of a command that writes, or was killed."""
    return any(_NAME.fullmatch(part) for part in path.parts)


@dataclass(frozen=True)
class _Change:
    """`new`, a file or a folder, takes the place of `path`; where it is `None`, nothing does. `old`
    is where the present one is kept."""

    path: Path
    old: Path
    new: Path | None = None
    is_folder: bool = False
    mode: int | None = None

    def prepare(self) -> None:
        """Keep the present file under a second name: a hard link if possible, which saves space. A
        folder, and a file that goes, is renamed instead."""
        if self.new is not None and self.mode is not None:
            os.chmod(self.new, stat.S_IMODE(self.mode))
        if self.new is None or self.is_folder or not os.path.lexists(self.path):
            return
        try:
            os.link(self.path, self.old, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:  # the file system has no links, or not to files of other users
            shutil.copy2(self.path, self.old)

    def make(self) -> None:
        if self.new is None or (self.is_folder and self.path.exists()):
            os.rename(self.path, self.old)
        if self.new is not None:
            os.replace(self.new, self.path)

    def take_back(self) -> None:
        is_kept = os.path.lexists(self.old)
        if self.new is not None and not os.path.lexists(self.new):
            if is_kept and not self.is_folder:
                os.replace(self.old, self.path)
                return
            os.rename(self.path, self.new)
        if is_kept and (self.new is None or self.is_folder):
            os.rename(self.old, self.path)


class Transaction:
    """Changes to files. As a context manager, makes them at its end, or none if anything raises.

    An error of the file system becomes a `RewriterError` about the last file passed to `about`, at
    first `path`. It names what could not be removed or undone.
    """

    def __init__(self, path: Path) -> None:
        self._about = path
        self._changes: list[_Change] = []
        self._scratch: dict[Path, tuple[Path, int | None]] = {}
        self._cleared: set[Path] = set()
        self._made: list[Path] = []
        self._tried: list[_Change] = []

    def about(self, path: Path) -> Path:
        """Set the file that errors are about, and clear its folder of what killed commands
        left."""
        self._about = path
        if path.parent not in self._cleared:
            self._cleared.add(path.parent)
            clear(path.parent)
        return path

    def stage(self, path: Path, *, is_folder: bool = False, mode: int | None = None) -> Path:
        """Where to write the new content of `path`: a file, or a folder that does not exist yet."""
        self.about(path)
        new, old = (self._in_scratch(path, kind) for kind in (_NEW, _OLD))
        self._changes.append(_Change(path, old, new, is_folder, mode))
        return new

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self._changes.append(_Change(self.about(path), self._in_scratch(path, _GONE)))

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its missing parents."""
        missing = []
        self.about(folder)
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            with held_back():
                os.mkdir(path)
                self._made.append(path)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self._commit()
            except BaseException as found:
                error = found
            else:
                self._end()
                return
        left = self._undo()
        if left:
            why = _why(error)
            raise RewriterError(
                "left-behind",
                f"cannot write {self._about}: {why}; nor could all of it be undone:\n    "
                + "\n    ".join(left),
                hint="No file is half written. The next command that writes there removes the "
                "hidden folders; they may be removed by hand, too.",
                code=FAILED,
            ) from error
        if isinstance(error, OSError):
            raise unwritable(self._about, error) from error
        if error is not None and kind is None:
            raise error

    def _commit(self) -> None:
        for change in self._changes:
            self.about(change.path)
            change.prepare()
        with held_back():
            for change in self._changes:
                self.about(change.path)
                self._tried.append(change)
                change.make()

    def _end(self) -> None:
        with held_back():
            left = self._clear()
        if left:
            raise RewriterError(
                "left-behind",
                "all results are written, but temporary files could not be removed:\n    "
                + "\n    ".join(left),
                hint="The next command that writes there removes them, or you remove them by hand.",
                code=FAILED,
            )

    def _undo(self) -> list[str]:
        """Undo the changes. Returns sentences about what could not be undone."""
        left = []
        with held_back():
            for change in reversed(self._tried):
                try:
                    change.take_back()
                except OSError as error:
                    left.append(f"{change.path} is not as it was: {_why(error)}")
            left += self._clear()
            for folder in reversed(self._made):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    left.append(f"{folder} was made, and cannot be removed: {_why(error)}")
        return left

    def _clear(self) -> list[str]:
        """Remove the hidden folders. Returns sentences about those that could not be removed."""
        left = []
        for path, lock in self._scratch.values():
            try:
                _remove(path)
            except OSError as error:
                left.append(f"{path}: {_why(error)}")
            if lock is not None:
                os.close(lock)
        self._scratch.clear()
        return left

    def _in_scratch(self, path: Path, kind: str) -> Path:
        """The name for a file in the hidden folder beside it."""
        folder = path.parent
        if folder not in self._scratch:
            self._make_scratch(folder)
        where = self._scratch[folder][0] / kind
        if not where.is_dir():
            os.mkdir(where, 0o700)
        return where / path.name

    def _make_scratch(self, folder: Path) -> None:
        while True:
            path = folder / f".rewriter-{os.getpid()}-{os.urandom(4).hex()}"
            self._scratch[folder] = path, None
            os.mkdir(path, 0o700)
            # Before it was locked, another command may have removed it as that of a dead one.
            with contextlib.suppress(FileNotFoundError):
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._scratch[folder] = path, lock
                if _take(lock) is not False and os.stat(path).st_ino == os.fstat(lock).st_ino:
                    return
                os.close(lock)


def clear(folder: Path) -> None:
    """Remove the hidden folders of commands that were killed while they wrote to a folder.

    Restores what such a command had moved away and not yet replaced.
    """
    # What cannot be read or removed stays: it does no harm, and the next command tries again.
    with contextlib.suppress(OSError):
        folders = [Path(entry) for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
        for path in folders:
            with contextlib.suppress(OSError):
                _clear_dead(path)


def _clear_dead(path: Path) -> None:
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        return
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _take(lock):
            return
        for old in (path / _OLD).glob("*"):
            # Files have links, so only folders can be missing: they are moved before replacement.
            if old.is_dir() and not os.path.lexists(path.parent / old.name):
                os.rename(old, path.parent / old.name)
        _remove(path)
    finally:
        os.close(lock)


def _take(lock: int) -> bool | None:
    """Try to take a lock; `None` if the file system has no locks."""
    try:
        return locks.take(lock)
    except OSError:
        return None


def _remove(path: Path) -> None:
    if os.path.lexists(path):
        shutil.rmtree(path)


def unwritable(path: Path, error: OSError) -> RewriterError:
    """The error for a path that could not be written, when nothing was changed."""
    hint = "Check that the folder exists and may be written, or pass another path."
    if error.errno == errno.ENOSPC:
        hint = f"Free space there, or in the directory of temporary files, {tempfile.gettempdir()}."
    return RewriterError(
        "unwritable",
        f"cannot write {path}: {_why(error, beside=path)}",
        hint=f"Nothing was written. {hint}",
    )


def _why(error: BaseException | None, beside: Path | None = None) -> str:
    """The text of an error, with the file that it is about unless that is clear."""
    if not isinstance(error, OSError):
        return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    # Of a copy, the second is the one that is written.
    file = error.filename2 or error.filename
    file = os.fspath(file) if isinstance(file, (str, os.PathLike)) else ""
    clear = beside is None or not file or is_scratch(Path(file)) or Path(file) == beside
    return f"{error.strerror or error}" + ("" if clear else f": {file}")
