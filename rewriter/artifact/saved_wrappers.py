"""The wrappers of a directory that is loaded as a whole, named after the pieces of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from rewriter.artifact import saved_directory
from rewriter.artifact.contained_wrappers import open_container
from rewriter.artifact.directory import open_directory, read_directory
from rewriter.artifact.gathered import Opened, gather
from rewriter.artifact.saved_directory import INDEX, MODEL, STANDALONE, VLLM
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.text import natural_order
from rewriter.core.transaction import is_scratch


def open_saved_directory(path: Path) -> Artifact | None:
    """Open an unpacked artifact, or a directory of vLLM's; `None` if a path is neither.

    Raises `RewriterError` if there is no wrapper.
    """
    if not path.is_dir():
        return None
    if saved_directory.is_standalone(path):
        return replace(open_directory(path) or Artifact(path, ()), directory=STANDALONE)
    indexes, models = _below(path, INDEX), _below(path, f"rank_*/{MODEL}")
    return _of_vllm(path, indexes, models) if indexes or models else None


def _below(path: Path, pattern: str) -> list[Path]:
    """The files that match a pattern in a directory tree."""
    files = sorted(path.rglob(pattern))
    return [file for file in files if file.is_file() and not is_scratch(file.relative_to(path))]


def _of_vllm(path: Path, indexes: list[Path], models: list[Path]) -> Artifact:
    """The wrappers in vLLM's files and containers."""
    opened, unread = read_directory(path)
    titles = {model: model.parent.relative_to(path).as_posix() for model in models}
    for index in indexes:
        folder = index.parent.relative_to(path)
        try:
            pieces = saved_directory.pieces(index)
        except (ValueError, RewriterError) as error:
            unread.append((str(index.relative_to(path)), f"an index that cannot be read: {error}"))
            continue
        titles |= {piece.path: (folder / piece.title).as_posix() for piece in pieces}
    contained: list[Artifact] = []
    for place, title in titles.items():
        name = place.relative_to(path).as_posix()
        if place.is_dir() or place.suffix == ".py":
            continue
        try:
            container = open_container(place)
        except RewriterError as error:
            opened.append((title, error))
            continue
        if container is None:
            unread.append((name, "no artifact of torch's"))
        else:
            contained.append(container)
    opened += [wrapper for artifact in contained for wrapper in artifact.wrappers]
    taken: Counter[str] = Counter()
    named = [_named(path, one, titles, taken) for one in opened]
    named.sort(key=lambda one: natural_order(_name(one)))
    gathered = gather(path, named, unread)
    return replace(gathered, directory=VLLM, contained=tuple(contained))


def _name(opened: Opened) -> str:
    return opened.name if isinstance(opened, Wrapper) else opened[0]


def _named(path: Path, opened: Opened, titles: dict[Path, str], taken: Counter[str]) -> Opened:
    """Rename a wrapper to vLLM's title of its piece of the model, if there is one."""
    if not isinstance(opened, Wrapper):
        return opened
    place = next((upward for upward in _upwards(path, opened) if upward in titles), None)
    if place is None:
        return opened
    # In a container each piece of a model has its own folder.
    inner = PurePosixPath(opened.name).parent if opened.stored else PurePosixPath()
    stem = (PurePosixPath(titles[place]) / inner / opened.graph).as_posix()
    taken[stem] += 1
    number = f"_{taken[stem]}" if taken[stem] > 1 else ""
    name = f"{stem}{number}{opened.path.suffix}"
    return replace(opened, name=name)


def _upwards(path: Path, wrapper: Wrapper) -> Iterator[Path]:
    yield wrapper.path
    for folder in wrapper.path.parents:
        if folder == path:
            return
        yield folder
