"""Opens an artifact: asks each form in turn whether it can open the path. Executes nothing.

A form is a module or a folder here, with a function that opens a path and a subclass of `Artifact`,
and a line in `_FORMS`. If its files are not text, it has a line in `OTHER_FORMS` of `recognise.py`,
too: directories list such files without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from rewriter.artifact.recognise import PACKAGE, PAIRED, not_a_wrapper, read_head, unreadable
from rewriter.artifact.types import Artifact
from rewriter.core.errors import RewriterError

Models = tuple[str, ...] | None
_Open = Callable[[Path, Models], Artifact | None]


def _may_be_container(path: Path) -> bool:
    head = read_head(path)
    return not head.isascii() or b"\0" in head or head.startswith(b"PT2")  # no text


def _form(
    name: str, may_be: Callable[[Path], bool] = lambda path: True, *, has_models: bool = False
) -> _Open:
    """A form, given as `module:function`. The module is imported only if the path may be of it."""

    def opened(path: Path, models: Models) -> Artifact | None:
        if not may_be(path):
            return None
        module, _, function = name.partition(":")
        open_form = getattr(import_module(f"rewriter.artifact.{module}"), function)
        artifact: Artifact | None = open_form(path, models) if has_models else open_form(path)
        return artifact

    return opened


# Each opens a path, or returns `None` if the path has another form. The last one raises an error
# that says what is wrong with the file.
_FORMS: tuple[_Open, ...] = (
    _form("package.model:open_unpacked", Path.is_dir, has_models=True),
    _form("saved.opening:open_saved_directory", Path.is_dir),
    _form("directory:open_directory", Path.is_dir),
    _form("wrapper_file:open_pair", lambda path: path.suffix == PAIRED),
    _form(
        "package.model:open_package",
        lambda path: read_head(path).startswith(PACKAGE.magic),
        has_models=True,
    ),
    _form("containers.opening:open_container", _may_be_container),
    _form("traces:open_trace"),
    _form("posted:open_posted"),
    _form("wrapper_file:open_wrapper_file"),
)


def open_artifact(
    path: str | Path, models: Iterable[str] = (), *, kernels: bool = False
) -> Artifact:
    """Open a wrapper, a package, a container, a directory, or a log, without importing torch.

    `.launches` and `.unrecognised` of the result are what was found in it. `models` chooses models
    of a package by their names; none are all. With `kernels`, a file may also hold kernels alone,
    which nothing launches. Raises `RewriterError` if the path is not an
    artifact, and says what it is.
    """
    path = Path(path)
    if not path.name:
        path = path.resolve()  # such as `.`: results are written beside the artifact
    chosen = tuple(models) or None
    try:
        opened = (open_form(path, chosen) for open_form in _FORMS)
        artifact = next(artifact for artifact in opened if artifact is not None)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error
    fragments = [wrapper for wrapper in artifact.wrappers if wrapper.is_fragment]
    if fragments and not kernels and not artifact.launches:
        raise not_a_wrapper(path, fragments[0].source)
    if chosen and not artifact.is_rebuilt:
        why = f"--model given, but {path} is no package"
        raise RewriterError("idle-options", why, hint="Drop it.")
    return artifact
