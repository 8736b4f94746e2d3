"""The cache of built libraries, in the user's cache directory: nothing is compiled twice.

It also has the objects that libraries are linked from, which several libraries may share. Both are
found by everything that they are made from: sources, commands, the original library if it is linked
to, the compiler and the programs that it starts, torch, and every header. The headers are only
known after a build (from the compiler's own list), so an entry names them, with hashes of their
contents. The file of a product is named by its own hash: one that is damaged or incomplete is not
used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rewriter.artifact.package.pack import sha256
from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.runtime.cache_directory import cache_directory
from rewriter.version import __version__

LIMIT = 256 << 20  # bytes of all libraries and objects; a single one may have a quarter
_LIBRARY = ".so"
_SUFFIXES = (_LIBRARY, ".o")
_PROGRAMS = ("cc1plus", "as", "ld", "collect2")
# The variables that compilers and linkers read.
_ENVIRONMENT = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LD_RUN_PATH",
    "SOURCE_DATE_EPOCH",
    "CCC_OVERRIDE_OPTIONS",
)


@dataclass(frozen=True)
class Kept:
    """The content of the cache of builds."""

    directory: Path
    count: int  # of libraries
    size: int  # with the objects


@dataclass(frozen=True)
class Product:
    """A library or an object, and the headers that it was made from."""

    content: bytes
    headers: tuple[Path, ...]


def directory() -> Path | None:
    """Where builds are kept: in `REWRITER_CACHE_DIR`, or the user's; `None` if it is off."""
    return cache_directory("builds")


def usage() -> Kept | None:
    """What is kept, for `doctor`."""
    place = directory()
    if place is None:
        return None
    files = list(_products(place))
    libraries = sum(path.suffix == _LIBRARY for path, _, _ in files)
    return Kept(place, libraries, sum(size for _, size, _ in files))


def key(commands: Sequence[Sequence[str]], contents: Sequence[str], versions: str) -> str:
    """The key of a build, without the headers that it reads.

    `contents` are the hashes of its other inputs, `versions` those of torch.
    """
    compilers = sorted({command[0] for command in commands if command})
    facts = {
        "version": __version__,
        "torch": versions,
        "commands": [list(command) for command in commands],
        "contents": list(contents),
        "compilers": [_identity(compiler) for compiler in compilers],
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def find(wanted: str) -> Product | None:
    """The product of a build, if it is in the cache, undamaged, and its headers are unchanged."""
    place = directory()
    if place is None:
        return None
    for entry in sorted(place.glob(f"{wanted}-*.json")):
        try:
            facts = json_text.parse_object(limits.read(entry, limits.JSON_BYTES))
            headers, digest, suffix = facts["headers"], facts["sha256"], facts["suffix"]
            if any(sha256(Path(path)) != known for path, known in headers.items()):
                continue
            file = place / f"{digest}{suffix}"
            content = file.read_bytes()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RewriterError):
            continue  # damaged, or removed meanwhile: it is built again
        if hashlib.sha256(content).hexdigest() != digest:
            continue
        with contextlib.suppress(OSError):
            os.utime(file)  # the oldest go first
        return Product(content, tuple(map(Path, headers)))
    return None


def keep(wanted: str, product: Path, headers: Sequence[Path]) -> None:
    """Keep a library or an object. If that fails, it is built again the next time."""
    place = directory()
    if place is None:
        return
    try:
        if product.stat().st_size > LIMIT // 4:
            return
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = product.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        known = {str(path): sha256(path) for path in sorted(set(headers))}
        entry = {"sha256": digest, "suffix": product.suffix, "headers": known}
        facts = json.dumps(entry, sort_keys=True).encode()
        _write(place / f"{digest}{product.suffix}", data)
        _write(place / f"{wanted}-{hashlib.sha256(facts).hexdigest()[:16]}.json", facts)
        _trim(place)
    except OSError:
        return  # no space, or no permission to write


def headers_in(rules: str, folder: Path) -> list[Path]:
    """The files that a compiler read (`-MD`), except those in the temporary directory."""
    words = rules.replace("\\\n", " ").replace("\\ ", "\0").split()
    paths = [Path(word.replace("\0", " ").replace("$$", "$")) for word in words]
    found = [folder / path for path in paths if not str(path).endswith(":")]
    return [path for path in found if folder not in path.parents]


@cache
def _identity(compiler: str) -> list[str]:
    """A compiler and the programs that it starts: versions, and files as they are now."""
    found = [_asked(compiler, "--version")]
    paths = [compiler, *(_asked(compiler, f"-print-prog-name={name}") for name in _PROGRAMS)]
    for path in paths:
        with contextlib.suppress(OSError):
            # A program that is not part of the compiler is printed by its name only.
            real = Path(shutil.which(path.strip()) or path.strip()).resolve(strict=True)
            about = real.stat()
            found.append(f"{real} {about.st_size} {about.st_mtime_ns}")
    return found


def _asked(compiler: str, option: str) -> str:
    try:
        done = subprocess.run(
            [compiler, option], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _products(place: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield each library or object with its size and the time of its last use."""
    for path in (path for suffix in _SUFFIXES for path in place.glob(f"*{suffix}")):
        with contextlib.suppress(OSError):
            about = path.stat()
            yield path, about.st_size, about.st_mtime_ns


def remove_oldest(files: Iterable[tuple[Path, int, int]], limit: int) -> bool:
    """Remove the files that were used least recently, until the others have no more than `limit`
    bytes. `files` are paths, sizes and times. Returns whether any was removed."""
    oldest = sorted(files, key=lambda x: x[2])
    size = sum(file[1] for file in oldest)
    removed = size > limit
    for path, bytes_, _ in oldest:
        if size <= limit:
            break
        path.unlink(missing_ok=True)
        size -= bytes_
    return removed


def _trim(place: Path) -> None:
    """Remove the oldest products beyond the limit, and entries whose product no longer exists."""
    if not remove_oldest(_products(place), LIMIT):
        return
    left = {path.stem for path, _, _ in _products(place)}
    for entry in place.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RewriterError):
            if json_text.parse_object(limits.read(entry, limits.JSON_BYTES))["sha256"] not in left:
                entry.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write atomically; concurrent writers write identical bytes."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
