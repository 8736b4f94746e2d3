"""Opens an artifact: asks each form in turn whether it can open the path. Executes nothing.

To add a form, write a module with a function like those in `_FORMS`, and add a line there. If its
files are not text, add a line to `OTHER_FORMS` of `recognise.py`, too: directories list such files
without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rewriter.artifact.recognise import PACKAGE, read_head, unreadable
from rewriter.artifact.types import Artifact
from rewriter.core.errors import RewriterError

Models = tuple[str, ...] | None


# The module of a form is imported only if the path may be of that form.


def _unpacked(path: Path, models: Models) -> Artifact | None:
    if not path.is_dir():
        return None
    from rewriter.artifact.packaged_wrappers import open_unpacked

    return open_unpacked(path, models)


def _saved_directory(path: Path, models: Models) -> Artifact | None:
    if not path.is_dir():
        return None
    from rewriter.artifact.saved_wrappers import open_saved_directory

    return open_saved_directory(path)


def _directory(path: Path, models: Models) -> Artifact | None:
    if not path.is_dir():
        return None
    from rewriter.artifact.directory import open_directory

    return open_directory(path)


def _precompile_cache(path: Path, models: Models) -> Artifact | None:
    if path.suffix != ".cache":
        return None
    from rewriter.artifact.precompile_cache import open_precompile_cache

    return open_precompile_cache(path)


def _zip(path: Path, models: Models) -> Artifact | None:
    if not read_head(path).startswith(PACKAGE.magic):
        return None
    from rewriter.artifact.packaged_wrappers import open_zip

    return open_zip(path, models)


def _container(path: Path, models: Models) -> Artifact | None:
    head = read_head(path)
    if head.isascii() and b"\0" not in head and not head.startswith(b"PT2"):
        return None  # text
    from rewriter.artifact.contained_wrappers import open_container

    return open_container(path)


def _trace(path: Path, models: Models) -> Artifact | None:
    from rewriter.artifact.traced_wrappers import open_trace

    return open_trace(path)


def _wrapper_file(path: Path, models: Models) -> Artifact | None:
    from rewriter.artifact.wrapper_files import open_wrapper_file

    return open_wrapper_file(path)


# Each opens a path, or returns `None` if the path has another form. The last one raises an error
# that says what is wrong with the file.
_FORMS: tuple[Callable[[Path, Models], Artifact | None], ...] = (
    _unpacked,
    _saved_directory,
    _directory,
    _precompile_cache,
    _zip,
    _container,
    _trace,
    _wrapper_file,
)


def open_artifact(path: str | Path, models: Iterable[str] | None = None) -> Artifact:
    """Open a wrapper, a package, a container, a directory, or a log, without importing torch.

    `.launches` and `.unrecognised` of the result are what was found in it. `models` chooses models
    of a package by their names. Raises `RewriterError` if the path is not an artifact, and says
    what it is.
    """
    path = Path(path)
    if not path.name:
        path = path.resolve()  # such as `.`: results are written beside the artifact
    chosen = None if models is None else tuple(models)
    try:
        opened = (open_form(path, chosen) for open_form in _FORMS)
        artifact = next(artifact for artifact in opened if artifact is not None)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error
    if chosen and artifact.package is None:
        why = f"--model given, but {path} is no package"
        raise RewriterError("idle-options", why, hint="Drop it.")
    return artifact
