"""Hashes the members of a package. They are read in pieces, and may be larger than memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from rewriter.artifact.package import pack
from rewriter.artifact.package.container import Overlay, Zip
from rewriter.artifact.package.model import Package
from rewriter.core.errors import RewriterError


def member_hashes(package: Package) -> dict[str, str]:
    """The SHA-256 of each member, by its name without the archive's own."""
    try:
        return {
            name.removeprefix(package.root): pack.sha256_of(source)
            for name, source in _opened(package)
        }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise RewriterError(
            "corrupt-package",
            f"{package.path}: the zip file is damaged: {error}",
            hint="Copy the package again; `python -m zipfile -t FILE` should find nothing.",
        ) from error


def _opened(package: Package) -> Iterator[tuple[str, IO[bytes]]]:
    container = package.container
    if isinstance(container, (Zip, Overlay)):
        archive = container if isinstance(container, Zip) else container.original
        files = container.files if isinstance(container, Overlay) else {}
        with zipfile.ZipFile(archive.path) as file:
            for name in archive.names:
                if name in files:
                    with (container.path / files[name]).open("rb") as source:
                        yield name, source
                else:
                    with file.open(name) as member:
                        yield name, member
        return
    for name in container.names:
        with (container.path / name).open("rb") as source:
            yield name, source
