"""Opens an artifact: asks each form in turn whether the path is one of its own. Executes nothing.

A further form is a module with a function as those in `_forms`, and a line there; if its files are
no text, also a line in `OTHER_FORMS` of `recognise.py`: a directory names them, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rewriter.artifact.recognise import PACKAGE, read_head, unreadable
from rewriter.artifact.types import Artifact

Models = tuple[str, ...] | None
_Open = Callable[[Path, Models], Artifact | None]


def _forms(path: Path) -> Iterator[_Open]:
    """The forms that a path may be of. Each opens it, or says with `None` that it is of another;
    the last one raises what is wrong with a file that is of no form.

    What opens a form is imported when its turn comes, if the path may be of it.
    """
    if path.is_dir():
        from rewriter.artifact.directory import open_directory
        from rewriter.artifact.packaged_wrappers import open_unpacked
        from rewriter.artifact.saved_wrappers import open_saved_directory

        yield open_unpacked
        yield lambda path, models: open_saved_directory(path)
        yield lambda path, models: open_directory(path)
    if path.suffix == ".cache":
        from rewriter.artifact.precompile_cache import open_precompile_cache

        yield lambda path, models: open_precompile_cache(path)
    head = read_head(path)
    if head.startswith(PACKAGE.magic):
        from rewriter.artifact.packaged_wrappers import open_zip

        yield open_zip
    if not head.isascii() or b"\0" in head or head.startswith(b"PT2"):
        from rewriter.artifact.contained_wrappers import open_container

        yield lambda path, models: open_container(path)
    from rewriter.artifact.traced_wrappers import open_trace
    from rewriter.artifact.wrapper_files import open_wrapper_file

    yield lambda path, models: open_trace(path)
    yield lambda path, models: open_wrapper_file(path)


def open_artifact(path: str | Path, models: Iterable[str] | None = None) -> Artifact:
    """Open a wrapper, a package, a container, a directory, or a log, without importing torch.

    `.launches` and `.unrecognised` of the result are what was found in it. `models` chooses models
    of a package by their names. Raises `RewriterError` saying what the file is where it is no
    artifact.
    """
    path = Path(path)
    if not path.name:
        path = path.resolve()  # `.`, beside which nothing could be written
    chosen = None if models is None else tuple(models)
    try:
        opened = (open_form(path, chosen) for open_form in _forms(path))
        return next(artifact for artifact in opened if artifact is not None)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error
