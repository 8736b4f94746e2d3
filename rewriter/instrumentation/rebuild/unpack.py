"""What is read of a package before it is patched: its libraries, its hash, its checksums.

A package may have gigabytes of weights. So weights are not unpacked where they are not needed, and
the package is hashed, its checksums compared, and it is copied while the compiler is busy.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO

from rewriter.artifact.package import library, pack
from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package
from rewriter.core import parallel
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild.build_steps import Unpacked

_CHUNK = 16 << 20  # bytes that are copied at once
# Bytes in which weights behind a library end; they are compared when it is loaded, in
# torch/csrc/inductor/aoti_runtime/model_base.h.
_MAGIC = 8


@dataclass(frozen=True)
class Reading:
    """What is found out while the wrapper of a package is instrumented and compiled: the hash of
    the package, and whether its libraries have their checksums."""

    digest: Callable[[], str]
    require_sound: Callable[[], None]

    def finish(self) -> str:
        """Wait for both; returns the hash. Raises `RewriterError` where a checksum is wrong."""
        self.require_sound()
        return self.digest()

    @contextmanager
    def explains(self) -> Iterator[None]:
        """If the body fails and a checksum is wrong, that is the error."""
        try:
            yield
        except RewriterError:
            self.require_sound()
            raise


@contextmanager
def reading(package: Package) -> Iterator[Reading | None]:
    """Read a package in the background, until the body ends. `None` for a directory, whose files
    have no checksums."""
    if package.is_folder:
        yield None
        return
    with (
        parallel.beside(partial(_sha256, package.path)) as digest,
        parallel.beside(partial(_require_sound, package)) as require_sound,
    ):
        yield Reading(digest, require_sound)


def copy(path: Path, output: Path, stopped: Event) -> None:
    """Copy a file, until it is stopped."""
    with _Stoppable(path, stopped) as source, output.open("wb") as target:
        shutil.copyfileobj(source, target, _CHUNK)


class _Stoppable(io.FileIO):
    """A file that ends where it is stopped."""

    def __init__(self, path: Path, stopped: Event) -> None:
        super().__init__(path)
        self._stopped = stopped

    def read(self, size: int | None = -1) -> bytes:
        return b"" if self._stopped.is_set() else super().read(size)


def _sha256(path: Path, stopped: Event) -> str:
    with _Stoppable(path, stopped) as file:
        return pack.sha256_of(file)


def _require_sound(package: Package, stopped: Event) -> None:
    for model in package.models:
        if model.library is not None:
            package.container.check(model.library, stopped)


def library_of(package: Package, model: Model, *, check: bool = False) -> Library | None:
    """ELF facts of a model's library, read in place; `None` if it has no library. With
    `check`, it is read once more to compare its checksum."""
    if model.library is None:
        return None
    if check:
        package.container.check(model.library)
    with package.container.open(model.library) as file:
        try:
            return library.read_from(file, f"{package.path}: {model.library}")
        except RewriterError:
            package.container.check(model.library)  # if that is damaged, it is why
            raise


def unpack(package: Package, model: Model, original: Library, to: Path, *, whole: bool) -> Unpacked:
    """Copy the library of a model into a new file. If it is not needed `whole`, but to be linked
    to, there is a hole where the weights are: they may be gigabytes, and no linker reads them."""
    name = model.library
    assert name is not None
    size, digest = package.container.size(name), hashlib.sha256()
    with package.container.open(name) as source, to.open("xb") as target:
        hole = range(0) if whole else _weights(original, model, source, size)
        for part in (range(hole.start), range(hole.stop, size)):
            source.seek(part.start)
            target.seek(part.start)
            for block in pack.blocks(source, len(part)):
                digest.update(block)
                target.write(block)
        target.truncate(size)
    return Unpacked(to, digest.hexdigest())


def _weights(original: Library, model: Model, file: IO[bytes], size: int) -> range:
    """Where the weights stand in a library, which has `size` bytes; empty if they are elsewhere."""
    constants = original.constants
    if constants is None or model.weights not in ("in the library", "behind the library"):
        return range(0)
    start, stop = constants.offset, constants.offset + constants.size
    if model.weights == "behind the library":
        file.seek(max(0, start))
        start, stop = size - int.from_bytes(file.read(8), "little"), size - _MAGIC
    # A library may say nonsense.
    return range(start, stop) if 0 < start < stop <= size else range(0)
