"""The wrappers of an AOTInductor package: a `.pt2` file, or the directory of an unpacked one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rewriter.artifact.package.container import is_folder
from rewriter.artifact.package.model import open_package, select
from rewriter.artifact.recognise import PACKAGE, read_head
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core import limits
from rewriter.core.source import check_text
from rewriter.core.types import Json
from rewriter.locate import proxy_operators


def open_unpacked(path: Path, models: tuple[str, ...] | None) -> Artifact | None:
    """Open a directory that contains a package; `None` if a path is not one."""
    return _open(path, models) if path.is_dir() and is_folder(path) else None


def open_zip(path: Path, models: tuple[str, ...] | None) -> Artifact | None:
    """Open a `.pt2` file; `None` if a file is not a zip file."""
    return _open(path, models) if read_head(path).startswith(PACKAGE.magic) else None


def _open(path: Path, models: tuple[str, ...] | None) -> Artifact:
    package = open_package(path)
    package = replace(package, models=select(package, models))
    wrappers = []
    for model in package.models:
        file = path / model.wrapper
        check_text(str(file), model.source)
        operators: tuple[Json, ...] = ()
        if model.operators is not None:
            data = package.container.read(model.operators, limits.JSON_BYTES)
            operators = proxy_operators.read(path / model.operators, data)
        wrappers.append(Wrapper(model.wrapper, model.source, "cpp", file, operators))
    return Artifact(path, tuple(wrappers), package=package)
