"""The wrappers of a directory that is loaded as a whole, under the names of the model's pieces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rewriter.artifact import saved_directory
from rewriter.artifact.directory import open_directory
from rewriter.artifact.saved_directory import INDEX, STANDALONE, VLLM, Piece
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.core.errors import RewriterError
from rewriter.core.transaction import is_scratch


def open_saved_directory(path: Path) -> Artifact | None:
    """Open an unpacked artifact, or a directory of vLLM's; `None` where a path is neither.

    Raises `RewriterError` where there is no wrapper.
    """
    if not path.is_dir():
        return None
    if saved_directory.is_standalone(path):
        return replace(open_directory(path) or Artifact(path, ()), directory=STANDALONE)
    indexes = [one for one in sorted(path.rglob(INDEX)) if not is_scratch(one.relative_to(path))]
    return _of_vllm(path, indexes) if indexes else None


def _of_vllm(path: Path, indexes: list[Path]) -> Artifact:
    artifact = open_directory(path)
    assert artifact is not None
    unread = list(artifact.unread)
    names: dict[Path, str] = {}
    for index in indexes:
        folder = index.parent.relative_to(path)
        try:
            pieces = saved_directory.pieces(index)
        except (ValueError, RewriterError) as error:
            unread.append((str(index.relative_to(path)), f"an index that cannot be read: {error}"))
            continue
        for piece in pieces:
            names[piece.path] = (folder / _title(piece)).as_posix()
    taken: Counter[str] = Counter()
    wrappers = [_named(path, one, names, taken) for one in artifact.wrappers]
    wrappers.sort(key=lambda one: _in_order(one.name))
    return replace(artifact, wrappers=tuple(wrappers), unread=tuple(unread), directory=VLLM)


def _in_order(name: str) -> list[tuple[int, str]]:
    """What sorts `submod_2` before `submod_10`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _title(piece: Piece) -> str:
    more = len(piece.names) - 1
    return f"{piece.folder}+{more}" if more else piece.folder


def _named(
    path: Path, wrapper: OpenWrapper, names: dict[Path, str], taken: Counter[str]
) -> OpenWrapper:
    """A wrapper under the name of its piece; of what vLLM does not name, as it is."""
    place = next(
        (one for one in _upwards(path, wrapper) if one in names),
        None,
    )
    if place is None:
        return wrapper
    stem = f"{names[place]}/{wrapper.graph}"
    taken[stem] += 1
    number = f"_{taken[stem]}" if taken[stem] > 1 else ""
    name = f"{stem}{number}{wrapper.path.suffix}"
    return replace(wrapper, wrapper=replace(wrapper.wrapper, name=name))


def _upwards(path: Path, wrapper: OpenWrapper) -> Iterator[Path]:
    yield wrapper.path
    for folder in wrapper.path.parents:
        if folder == path:
            return
        yield folder
