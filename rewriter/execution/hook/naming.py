"""The names in the model for wrappers of a program: traced by the run that compiles them, and
stored by torch in the entries of its cache; and the pieces of a model that wrappers are for, by the
files that the program loaded.

`TORCH_TRACE` changes neither the keys of the cache nor a byte of the wrappers (measured with torch
2.13; INDUCTOR_PROVENANCE and TORCH_COMPILE_DEBUG change both, and are not set).

A serving engine splits a model and keeps the compiled code for each piece in a separate file or
directory. Equal pieces have one wrapper, which is called for each of them in turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.artifact.containers.aot_compile import layers_by_piece
from rewriter.artifact.containers.opening import open_container
from rewriter.artifact.saved.index import GRAPH, INDEX, pieces
from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import Pickle
from rewriter.core.text import natural_order
from rewriter.dump import names as dumped
from rewriter.dump import processes as processes_file
from rewriter.dump.processes import PieceOfModel, ProcessNames
from rewriter.execution.hook.server import Process
from rewriter.model_names import saved_layers, trace
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import of_wrappers
from rewriter.model_names.saved_layers import PieceNames

_VARIABLE = "TORCH_TRACE"
_MODELS = "torch_aot_compile"
_CACHES = ("fxgraph", "aotautograd")  # entries in these are not pieces
_RANK = re.compile(r"rank_?\d+(?:_\d+)?")
_MOST_PIECES = 2000


def environment(folder: Path) -> dict[str, str]:
    """The variables that make a program trace its compilations, unless the user set them."""
    return {} if os.environ.get(_VARIABLE) else {_VARIABLE: str(folder)}


def write(
    dump: Path, wrappers: Sequence[Wrapper], folder: Path, used: Mapping[int, Process]
) -> None:
    """Add the names of wrappers to a dump, from the logs in a folder and from the cache; and for
    processes, their pieces of the model, by the files that they loaded. What is there of others,
    such as those of an earlier server, stays.

    Raises `OSError`.
    """
    hashes = {Path(x.name).stem: trace.digest(x.restored.source) for x in wrappers}
    if found := of_processes(used, hashes):
        processes_file.write(dump, {**processes_file.read(dump), **found})
    names = of_wrappers(wrappers, Compilations(folder.glob("*.log")))
    known = {trace.digest(x.restored.source): names[x.name] for x in wrappers if x.name in names}
    if known:
        dumped.write(dump, {**dumped.read(dump), **known})


def of_processes(
    processes: Mapping[int, Process], hashes: Mapping[str, str]
) -> dict[int, ProcessNames]:
    """The facts about processes. `hashes` are those of plain wrappers, by their keys."""
    read = _Reader()
    return {
        process.pid: names
        for process in processes.values()
        if (names := _of_process(process, hashes, read)) != ProcessNames()
    }


def _of_process(process: Process, hashes: Mapping[str, str], read: _Reader) -> ProcessNames:
    pieces: dict[str, dict[PieceOfModel, None]] = {}
    ranks: set[str] = set()
    for path in _places(process):
        for key, piece in read(path):
            if key in hashes:
                pieces.setdefault(hashes[key], {})[piece] = None
                ranks.update(part for part in path.parts if _RANK.fullmatch(part))
    return ProcessNames(
        process.name,
        ranks.pop() if len(ranks) == 1 else "",
        {sha256: _in_order(found) for sha256, found in pieces.items()},
    )


def _places(process: Process) -> Iterator[Path]:
    """The files that a process read, and the directories of unpacked artifacts in its caches."""
    for path in process.files[:_MOST_PIECES]:
        if not any(part in _CACHES for part in path.parts):
            yield path
    yield from dict.fromkeys(path.parents[1] for path in process.wrappers)


def _in_order(pieces: Iterable[PieceOfModel]) -> tuple[PieceOfModel, ...]:
    """Pieces in the order in which a model runs them. If a wrapper is for several sizes of a piece,
    these are left out: it is not known which one a call has."""
    by_name: dict[str, list[PieceOfModel]] = {}
    for piece in pieces:
        by_name.setdefault(piece.name, []).append(piece)
    one = [
        same[0] if len(same) == 1 else PieceOfModel(name, "", same[0].layers, same[0].inputs)
        for name, same in by_name.items()
    ]
    return tuple(sorted(one, key=lambda piece: natural_order(piece.name)))


class _Reader:
    """Reads each file once: the processes of an engine load the same files."""

    def __init__(self) -> None:
        self._known: dict[Path, list[tuple[str, PieceOfModel]]] = {}
        self._indexes: dict[Path, dict[Path, tuple[str, ...]]] = {}
        self._layers: dict[Path, dict[str, PieceNames]] = {}

    def __call__(self, path: Path) -> list[tuple[str, PieceOfModel]]:
        """The keys of the wrappers in a file or directory, with the pieces that they are for."""
        if path not in self._known:
            try:
                self._known[path] = list(self._read(path))
            except (OSError, ValueError, RewriterError):
                self._known[path] = []  # another kind of file, or damaged, perhaps being written
        return self._known[path]

    def _read(self, path: Path) -> Iterator[tuple[str, PieceOfModel]]:
        names = self._named(path)
        if path.is_dir():
            if names:
                for wrapper in path.glob("[!.][!.]/*.py"):
                    yield from ((wrapper.stem, self._piece(path, name)) for name in names)
            return
        artifact = open_container(path) if path.is_file() else None
        if artifact is None:
            return
        root = artifact.contents.root
        layers = layers_by_piece(root) if isinstance(root, Pickle) else {}
        for stored in (wrapper.stored for wrapper in artifact.wrappers):
            for name in stored.submodules or names or (path.name,):
                piece = self._piece(path, name, is_model=bool(stored.submodules))
                known = piece.layers or layers.get(piece.name, ())
                yield stored.key, replace(piece, layers=known)

    def _named(self, path: Path) -> tuple[str, ...]:
        """The names that an index beside a file has for the pieces that it is for."""
        place = path.parent / INDEX
        if place not in self._indexes:
            known = pieces(place) if place.is_file() else []
            self._indexes[place] = {piece.path: piece.names for piece in known}
        return self._indexes[place].get(path, ())

    def _piece(self, path: Path, name: str, *, is_model: bool = False) -> PieceOfModel:
        name, _, sizes = name.partition(" ")
        graph = path.parent / GRAPH
        if graph not in self._layers:
            self._layers[graph] = _graph_of_model(path) if is_model else saved_layers.read(graph)
        known = self._layers[graph].get(name, PieceNames())
        return PieceOfModel(name, sizes, known.layers, known.inputs)


def _graph_of_model(path: Path) -> dict[str, PieceNames]:
    """The names of the pieces in a `model` of vLLM, `torch_aot_compile/<hash>/rank_0_0/model`.

    The text of its graph is in a directory with another hash, and is used if it is the only one.
    """
    folders = path.parents[2:4]
    if len(folders) < 2 or folders[0].name != _MODELS:
        return {}
    found = map(saved_layers.read, folders[1].glob(f"*/{path.parent.name}/*/{GRAPH}"))
    first = next(found, {})
    return first if all(other == first for other in found) else {}
