"""Opens an artifact: a wrapper, a package, a directory, a log. Never executes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rewriter.artifact.directory import open_directory, open_trace
from rewriter.artifact.package.container import is_folder
from rewriter.artifact.package.model import open_package, select
from rewriter.artifact.recognise import (
    not_a_wrapper,
    read,
    require_supported,
    starts_as_zip,
    unreadable,
)
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.artifact.wrapper_files import wrapper_in
from rewriter.core import limits
from rewriter.core.source import check_text
from rewriter.core.types import Json
from rewriter.locate import proxy_operators
from rewriter.locate.types import Wrapper


def open_artifact(path: str | Path, models: tuple[str, ...] | None = None) -> Artifact:
    """Open an artifact. Raises `RewriterError` saying what the file is where it is none.

    `models` chooses models of a package by their names.
    """
    path = Path(path)
    try:
        return _open(path, models)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error


def _open(path: Path, models: tuple[str, ...] | None) -> Artifact:
    if not path.name:
        path = path.resolve()  # `.`, beside which nothing could be written
    if path.is_dir():
        if is_folder(path):
            return _open_package(path, models)
        return open_directory(path)
    if starts_as_zip(path):
        return _open_package(path, models)
    if (traced := open_trace(path)) is not None:
        return traced
    data = read(path)
    require_supported(path, data)
    check_text(str(path), data)
    wrapper = wrapper_in(path, path.name, data)
    if wrapper is None:
        raise not_a_wrapper(path, data)
    return Artifact(path, (wrapper,))


def _open_package(path: Path, models: tuple[str, ...] | None) -> Artifact:
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
        wrappers.append(OpenWrapper(Wrapper(model.wrapper, model.source, "cpp"), file, operators))
    return Artifact(path, tuple(wrappers), package=package)
