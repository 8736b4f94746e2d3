"""Directories that are loaded as a whole: wrappers are named after the pieces of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar

from rewriter.artifact.containers.opening import Container, open_container
from rewriter.artifact.directory import read_directory
from rewriter.artifact.gathered import Gathered, Opened, gather
from rewriter.artifact.graph_kind import numbered
from rewriter.artifact.saved import index
from rewriter.artifact.saved.index import INDEX, MODEL, STANDALONE, VLLM
from rewriter.artifact.types import Form, NewFile, Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import Pickle
from rewriter.core.text import natural_order
from rewriter.core.transaction import is_scratch


@dataclass(frozen=True, kw_only=True)
class SavedDirectory(Gathered):
    """A directory that is loaded as a whole. `contained` are the containers in it, whose wrappers
    are among those of the directory."""

    contained: tuple[Container, ...] = ()

    is_copied_whole: ClassVar[bool] = True

    def rewritten(self, sources: Mapping[str, bytes]) -> tuple[NewFile, ...]:
        stored = {wrapper.name for container in self.contained for wrapper in container.wrappers}
        files = super().rewritten({name: sources[name] for name in sources.keys() - stored})
        for container in self.contained:
            names = (wrapper.name for wrapper in container.wrappers)
            if new := {name: sources[name] for name in names if name in sources}:
                files += container.rewritten(new)
        return tuple(
            replace(file, name=file.path.relative_to(self.path).as_posix()) for file in files
        )

    def makes_one(self, output: str | None) -> bool:
        return False

    def no_target(self) -> RewriterError:
        return RewriterError(
            "no-target",
            f"{self.path} is {self.form.description}, which is loaded as a whole",
            hint="Pass -o with a new directory for a copy of all of it, or --in-place.",
        )

    def pickles(self) -> Mapping[Path, Sequence[Pickle]]:
        return {path: found for x in self.contained for path, found in x.pickles().items()}


def open_saved_directory(path: Path) -> SavedDirectory | None:
    """Open an unpacked artifact, or a directory of vLLM's; `None` if a path is neither.

    Raises `RewriterError` if there is no wrapper.
    """
    if index.is_standalone(path):
        return _saved(STANDALONE, gather(path, *read_directory(path)))
    indexes, models = _below(path, INDEX), _below(path, f"rank_*/{MODEL}")
    return _of_vllm(path, indexes, models) if indexes or models else None


def _below(path: Path, pattern: str) -> list[Path]:
    """The files that match a pattern in a directory tree."""
    files = sorted(path.rglob(pattern))
    return [file for file in files if file.is_file() and not is_scratch(file.relative_to(path))]


def _saved(form: Form, gathered: Gathered, contained: tuple[Container, ...] = ()) -> SavedDirectory:
    return SavedDirectory(
        gathered.path,
        gathered.wrappers,
        gathered.unread,
        gathered.damaged,
        form,
        contained=contained,
    )


def _of_vllm(path: Path, indexes: list[Path], models: list[Path]) -> SavedDirectory:
    """The wrappers in vLLM's files and containers."""
    opened, unread = read_directory(path)
    titles = {model: model.parent.relative_to(path).as_posix() for model in models}
    for file in indexes:
        folder = file.parent.relative_to(path)
        try:
            pieces = index.pieces(file)
        except (ValueError, RewriterError) as error:
            unread.append((str(file.relative_to(path)), f"an index that cannot be read: {error}"))
            continue
        titles |= {piece.path: (folder / piece.title).as_posix() for piece in pieces}
    contained: list[Container] = []
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
    named = [_named(path, wrapper, titles, taken) for wrapper in opened]
    named.sort(key=lambda x: natural_order(_name(x)))
    gathered = gather(path, named, unread)
    return _saved(VLLM, gathered, tuple(_renamed(x, gathered.wrappers) for x in contained))


def _renamed(container: Container, wrappers: Sequence[Wrapper]) -> Container:
    """A container whose wrappers have the names that they have in the directory."""
    here = tuple(wrapper for wrapper in wrappers if wrapper.inside == container.path)
    return replace(container, wrappers=here, stored=here)


def _name(opened: Opened) -> str:
    return opened.name if isinstance(opened, Wrapper) else opened[0]


def _named(path: Path, opened: Opened, titles: dict[Path, str], taken: Counter[str]) -> Opened:
    """Rename a wrapper to vLLM's title of its piece of the model, if there is one."""
    if not isinstance(opened, Wrapper):
        return opened
    place = next((folder for folder in _upwards(path, opened) if folder in titles), None)
    if place is None:
        return opened
    # In a container each piece of a model has its own folder.
    inner = PurePosixPath(opened.name).parent if opened.stored.places else PurePosixPath()
    stem = (PurePosixPath(titles[place]) / inner / opened.graph).as_posix()
    return replace(opened, name=numbered(stem, taken) + opened.path.suffix)


def _upwards(path: Path, wrapper: Wrapper) -> Iterator[Path]:
    yield wrapper.path
    for folder in wrapper.path.parents:
        if folder == path:
            return
        yield folder
