"""A package as its members: a `.pt2` file, or a directory that one was unpacked to.

Only names, sizes and bytes are looked at. Names that would lead out of a directory, entries that
claim one another's bytes, and sizes that cannot be true are refused before anything is read.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event
from typing import IO, TYPE_CHECKING

from rewriter.artifact.package.pack import BLOCK, ORIGINAL, SOURCES
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json

if TYPE_CHECKING:
    from typing_extensions import Buffer as WriteableBuffer

# Where a package keeps its models: torch/csrc/export/pt2_archive_constants.h.
MODELS = "data/aotinductor/"
WEIGHTS = "data/weights/"

# What no real package inflates to; weights do not compress a hundredfold.
_BOMB_BYTES = 1 << 30
_BOMB_RATIO = 100
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what torch reads
_LOCAL_HEADER = 30  # bytes in front of an entry's name, at least
_LENGTHS = 26  # where these say how long the name and what follows it are
_END = struct.Struct("<4s4H2LH")  # what a zip file ends in: the fifth is the number of entries
_END_SIGNATURE = b"PK\5\6"
# Of files with more entries, or larger ones: where the other record is, and that.
_LOCATOR, _LOCATOR_SIGNATURE = struct.Struct("<4sLQL"), b"PK\6\7"
_END64, _END64_SIGNATURE = struct.Struct("<4sQ2H2L4Q"), b"PK\6\6"
_ENTRY = 46  # bytes of an entry in the directory, less its name
_COMMENT = 0xFFFF  # bytes of a comment, at most
# What reading a damaged file may raise.
_FAILURES = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, ValueError)


@dataclass(frozen=True)
class Container:
    """A file or directory, and its members by their paths in it, with `/` between the parts, in the
    order of the package."""

    path: Path
    names: tuple[str, ...]

    def size(self, name: str) -> int:
        """How many bytes a member has, as it says."""
        raise NotImplementedError

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member, a piece at a time. Raises `RewriterError` at the end if they
        do not have the checksum that the package says."""
        raise NotImplementedError

    def open(self, name: str) -> IO[bytes]:
        """A member to read parts of; its checksum is not compared."""
        raise NotImplementedError

    def read(self, name: str, bound: int) -> bytes:
        """The bytes of a member. Raises `RewriterError` where there are more than `bound`."""
        limits.require_size(self.path / name, self.size(name), bound)
        return b"".join(self.blocks(name))

    def extract(self, name: str, to: Path) -> None:
        """Copy a member, of any size, into a new file."""
        with to.open("xb") as target:
            target.writelines(self.blocks(name))

    def check(self, name: str, stopped: Event | None = None) -> None:
        """Compare the checksum of a member. Returns early if it is stopped."""
        for _ in self.blocks(name):
            if stopped is not None and stopped.is_set():
                return


def root_of(names: tuple[str, ...]) -> str:
    """What precedes `data/` in the names: the name that all have in common and a slash, or nothing.

    The writer of torch puts a directory of the archive's name around everything.
    """
    heads = {name.partition("/")[0] for name in names}
    if len(heads) == 1 and any(
        name.startswith(f"{head}/{MODELS}") for head in heads for name in names
    ):
        return f"{heads.pop()}/"
    return ""


@dataclass(frozen=True)
class Zip(Container):
    """A `.pt2` file. Made by `open_zip`, which checks it."""

    _opened: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _directory(self) -> zipfile.ZipFile:
        """The directory of the file, read once: a package may have thousands of members. A forked
        process opens its own, since it would share the place in the file with its parent."""
        if (process := os.getpid()) not in self._opened:
            self._opened[process] = zipfile.ZipFile(self.path)
        return self._opened[process]

    def size(self, name: str) -> int:
        with _reading(self.path):
            return self._directory.getinfo(name).file_size

    def blocks(self, name: str) -> Iterator[bytes]:
        with _reading(self.path), self._directory.open(name) as source:
            size = 0
            while block := source.read(BLOCK):
                size += len(block)
                yield block
            # An entry may inflate to less than it claims, which zipfile takes for its end.
            if size != self.size(name):
                problem = f"the entry {name!r} holds {size:,} bytes, not what it says"
                raise zipfile.BadZipFile(problem)

    def open(self, name: str) -> IO[bytes]:
        with _reading(self.path):
            entry = self._directory.getinfo(name)
            if entry.compress_type == zipfile.ZIP_STORED:
                # As torch writes it. zipfile would read all that stands before a place in it.
                return io.BufferedReader(_Part(self.path, *_place(self.path, entry)))
            unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
            unpacked.writelines(self.blocks(name))
            unpacked.seek(0)
            return unpacked


class _Part(io.RawIOBase):
    """Some bytes in the middle of a file, as a file."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._file = path.open("rb", buffering=0)
        self._start, self._size, self._at = start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        from_where = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = max(0, from_where[whence] + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        self._file.seek(self._start + self._at)
        count = self._file.readinto(view) or 0
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _place(path: Path, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Where the bytes of a stored member begin in a zip file, and how many there are."""
    with path.open("rb") as file:
        file.seek(entry.header_offset + _LENGTHS)
        name, extra = struct.unpack("<2H", file.read(4))
    return entry.header_offset + _LOCAL_HEADER + name + extra, entry.file_size


@dataclass(frozen=True)
class Folder(Container):
    """A directory with the members of a package in it. Made by `open_folder`, which checks it."""

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def blocks(self, name: str) -> Iterator[bytes]:
        with self.open(name) as source:
            while block := source.read(BLOCK):
                yield block

    def open(self, name: str) -> IO[bytes]:
        return (self.path / name).open("rb")

    def check(self, name: str, stopped: Event | None = None) -> None:
        """Files have no checksums."""


@dataclass(frozen=True)
class Overlay(Container):
    """Sources beside the package that they were taken from: what `--no-rebuild` writes.

    `files` gives the files of the directory for the members that they are to replace, as `sources`
    says, the content of its own file.
    """

    original: Zip
    files: Mapping[str, str]
    sources: Json

    def __post_init__(self) -> None:
        if not isinstance(self.files, Mapping):
            raise _refused(self.path, f"{SOURCES} does not say what the sources replace")
        for member, name in self.files.items():
            file = self.path / str(name)
            if member not in self.original.names:
                raise _refused(self.path, f"{SOURCES} replaces {member!r}, which is not there")
            is_sound = isinstance(name, str) and not _unsafe(name)
            if not is_sound or file.resolve() != self.path.resolve() / name:
                raise _refused(self.path, f"{SOURCES} leads out of the directory, to {name!r}")
            if not file.is_file():
                raise _missing(file)

    def _place(self, name: str) -> tuple[Container, str]:
        """Where a member is, and what it is called there."""
        if name in self.files:
            return Folder(self.path, ()), self.files[name]
        return self.original, name

    def size(self, name: str) -> int:
        container, inside = self._place(name)
        return container.size(inside)

    def blocks(self, name: str) -> Iterator[bytes]:
        container, inside = self._place(name)
        return container.blocks(inside)

    def open(self, name: str) -> IO[bytes]:
        container, inside = self._place(name)
        return container.open(inside)


def is_folder(path: Path) -> bool:
    """Whether a directory is an unpacked package: it, or the only thing in it, has `data/`.

    So is the directory that `--no-rebuild` writes, which has the package in it.
    """
    if (path / MODELS).is_dir() or (path / SOURCES).is_file():
        return True
    inside = list(path.iterdir())
    return len(inside) == 1 and (inside[0] / MODELS).is_dir() and not inside[0].is_symlink()


def open_folder(path: Path) -> Folder:
    """The files of a directory. Raises `RewriterError` on a link, or on too many."""
    names = []
    for file in sorted(path.rglob("*")):
        if file.is_symlink():
            raise _refused(path, f"{file.relative_to(path)} is a link")
        if file.is_file():
            names.append(file.relative_to(path).as_posix())
    if len(names) > limits.MEMBERS:
        raise limits.too_large(path, f"{len(names):,} files", f"{limits.MEMBERS:,}")
    return Folder(path, tuple(names))


def open_zip(path: Path) -> Zip:
    """Check the directory of a zip file and return its members. Raises on what is not sound."""
    if not path.is_file():
        raise _missing(path)
    claimed = _claimed(path)
    with _reading(path), zipfile.ZipFile(path) as file:
        entries = file.infolist()
    if claimed not in (None, len(entries)):  # zipfile is content with fewer
        raise _corrupt(path, f"{len(entries)} of its {claimed} entries can be found")
    _check_names(path, entries)
    for entry in entries:
        if entry.compress_type not in _METHODS:
            raise _corrupt(path, f"the entry {entry.filename!r} is neither stored nor deflated")
    _check_sizes(path, entries)
    return Zip(path, tuple(entry.filename for entry in entries if not entry.is_dir()))


def _claimed(path: Path) -> int | None:
    """How many entries a file says that it has; `None` if it does not end as a zip file.

    Refuses more than the bound before zipfile makes an object of each.
    """
    with path.open("rb") as file:
        there = file.seek(0, os.SEEK_END)
        file.seek(max(0, there - _END.size - _COMMENT))
        tail = file.read()
        # As zipfile looks for it: at the very end, or else with a comment behind it.
        at = len(tail) - _END.size
        if not (tail.startswith(_END_SIGNATURE, at) and tail.endswith(b"\0\0")):
            at = tail.rfind(_END_SIGNATURE)
        if not 0 <= at <= len(tail) - _END.size:
            return None  # zipfile says what it misses
        *_, count, size, _offset, _comment = _END.unpack_from(tail, at)
        where = tail[at - _LOCATOR.size : at] if at >= _LOCATOR.size else b""
        if where.startswith(_LOCATOR_SIGNATURE):
            file.seek(min(there, _LOCATOR.unpack(where)[2]))
            record = file.read(_END64.size)
            if record.startswith(_END64_SIGNATURE) and len(record) == _END64.size:
                *_, count, size, _offset = _END64.unpack(record)
    # What claims to be larger than the file is damaged, as zipfile finds.
    if limits.MEMBERS < count <= there // _ENTRY:
        raise limits.too_large(path, f"{count:,} members", f"{limits.MEMBERS:,}")
    if limits.DIRECTORY_BYTES < size <= there:
        problem = f"a directory of {size:,} bytes"
        raise limits.too_large(path, problem, f"{limits.DIRECTORY_BYTES:,}")
    return int(count)


def _check_names(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    for entry in entries:
        # `orig_filename` is what the file says; zipfile cuts names at a NUL.
        name = entry.orig_filename
        if why := _unsafe(name):
            raise _refused(path, f"the entry {name!r:.200} {why}")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise _refused(path, f"the entry {name!r} is a link")
        if entry.flag_bits & 0x1:
            raise _refused(path, f"the entry {name!r} is encrypted")
    twice = [name for name, count in Counter(e.filename for e in entries).items() if count > 1]
    if twice:
        raise _refused(
            path, f"there are two entries {twice[0]!r}: loaders differ in which they take"
        )


def _unsafe(name: str) -> str:
    """Why nobody should unpack an entry of this name."""
    if not name or "\0" in name or "\\" in name:
        return "has no sound name"
    if name.startswith("/") or name[1:2] == ":":
        return "has an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "leads out of the package"
    if len(name.encode("utf-8", "replace")) > limits.NAME_BYTES:
        return f"has a name of more than {limits.NAME_BYTES:,} bytes"
    return ""


def _check_sizes(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    total = sum(entry.file_size for entry in entries)
    there = path.stat().st_size
    if total > _BOMB_BYTES and total > _BOMB_RATIO * there:
        raise _refused(path, f"its {there:,} bytes claim to hold {total:,}")
    end = 0
    for entry in sorted(entries, key=lambda x: x.header_offset):
        if entry.header_offset < 0:
            raise _corrupt(path, "an entry begins before the file")
        if entry.header_offset < end:
            raise _refused(path, f"the entry {entry.filename!r} shares bytes with another")
        end = entry.header_offset + _LOCAL_HEADER + len(entry.orig_filename) + entry.compress_size
        if entry.compress_type == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
            raise _refused(path, f"the entry {entry.filename!r} gives two sizes")
    if end > there:
        raise _corrupt(path, "an entry ends behind the file")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged zip file may raise into one error."""
    try:
        yield
    except _FAILURES as error:
        raise _corrupt(path, str(error) or "it ends too early") from error


def _missing(path: Path) -> RewriterError:
    return RewriterError(
        "unreadable",
        f"cannot read {path}: no such file",
        hint=f"A directory with a {SOURCES} holds sources and {ORIGINAL}: make it again.",
    )


def _corrupt(path: Path, problem: str) -> RewriterError:
    if problem == "File is not a zip file":  # as zipfile says it
        problem = "its list of members, at the end, is missing: the file was cut short"
    return RewriterError(
        "corrupt-package",
        f"{path}: the zip file is damaged: {problem}",
        hint="Copy the package again; `python -m zipfile -t FILE` should find nothing either.",
    )


def _refused(path: Path, problem: str) -> RewriterError:
    return RewriterError(
        "unsafe-package",
        f"{path}: {problem}",
        hint="No torch writes such a package, and nothing of it was unpacked. Get it from its "
        "maker again.",
    )
