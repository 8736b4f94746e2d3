"""Finds the entries of wrappers in a directory of Inductor's cache, which may have thousands.

The entry of a graph has the name of its wrapper near its start, so only that part is read. Entries
of AOTAutograd may have the names of graphs anywhere: they are read whole, once, when needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeVar

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_values import PickleError
from rewriter.model_names.entries.reading import (
    AutogradEntry,
    CacheEntry,
    read_autograd,
    read_graph,
)

GRAPHS, AUTOGRAD = "fxgraph", "aotautograd"
_KEPT = 16  # entries of AOTAutograd kept in memory: a forward and its backward share one
_HEAD = 4096  # bytes that include the wrapper's key, which is the fourth attribute
# The key of a wrapper or of a graph as a string of a pickle, 52 letters long.
_KEY = re.compile(rb"\x8c\x34([cf][a-z2-7]{51})")
_CACHE_KEY = re.compile(rb"\x8c\x09cache_key\x94?\x8c\x34(c[a-z2-7]{51})")
_Entry = TypeVar("_Entry")
_Key = TypeVar("_Key", str, bytes)


def cache_of(wrapper: Path) -> Path | None:
    """The cache that a wrapper is in, by its path, if that has entries."""
    cache = wrapper.parent.parent
    if len(wrapper.parent.name) != 2 or wrapper.parent.name != wrapper.stem[1:3]:
        return None
    return cache if any((cache / name).is_dir() for name in (GRAPHS, AUTOGRAD)) else None


class EntryIndex:
    """The entries of one cache. `damaged` are those that could not be read when needed, with the
    reason."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._graphs: dict[str, CacheEntry | None] = {}
        self._read_autograd = lru_cache(maxsize=_KEPT)(partial(self._read, read=read_autograd))
        self.damaged: dict[Path, str] = {}

    def of_wrapper(self, key: str) -> CacheEntry | None:
        """The entry of a wrapper, by the stem of its file. The newest, if there are several."""
        if key not in self._graphs:
            self._graphs[key] = self._find(key)
        return self._graphs[key]

    def autograd(self, entry: CacheEntry) -> AutogradEntry | None:
        """The result of AOTAutograd that refers to a graph."""
        for key in filter(None, (entry.fx_key, entry.cache_key)):
            for file in self._of_autograd.get(key.encode(), ()):
                if (one := self._read_autograd(file)) and key in (one.forward, one.backward):
                    return one
        return None

    def wrapper_of(self, key: str) -> str:
        """The wrapper of a graph, by the key of the graph or of the wrapper; empty if not known."""
        if key.startswith("c"):
            return key
        for file in _files(self._cache / GRAPHS / key[1:3] / key):
            if name := self._named(file):
                return name
        return ""

    def _find(self, key: str) -> CacheEntry | None:
        for file in self._of_wrapper.get(key, ()):
            if (graph := self._read(file, read_graph)) is not None and graph.cache_key == key:
                return graph
        for file in self._of_autograd.get(key.encode(), ()):
            one = self._read_autograd(file)
            for graph in one.graphs if one is not None else ():
                if graph.cache_key == key:
                    return graph
        return None

    @cached_property
    def _of_wrapper(self) -> dict[str, list[Path]]:
        """The files of graphs by the keys of their wrappers, the newest first."""
        files: dict[str, list[Path]] = {}
        for file in _files(self._cache / GRAPHS):
            if name := self._named(file):
                files.setdefault(name, []).append(file)
        return _newest_first(files)

    @cached_property
    def _of_autograd(self) -> dict[bytes, list[Path]]:
        """The entries of AOTAutograd, by the keys in them."""
        files: dict[bytes, list[Path]] = {}
        for file in _files(self._cache / AUTOGRAD):
            if (data := self._bytes(file)) is not None:
                for key in dict.fromkeys(_KEY.findall(data)):
                    files.setdefault(key, []).append(file)
        return _newest_first(files)

    def _named(self, file: Path) -> str:
        """The wrapper whose key is in the entry of a graph."""
        try:
            with file.open("rb") as opened:
                head = opened.read(_HEAD)
        except OSError as error:
            self.damaged[file] = error.strerror or str(error)
            return ""
        match = _CACHE_KEY.search(head)
        return match[1].decode() if match else ""

    def _read(self, file: Path, read: Callable[[bytes], _Entry | None]) -> _Entry | None:
        if (data := self._bytes(file)) is None:
            return None
        try:
            return read(data)
        except PickleError as error:
            self.damaged[file] = str(error)
            return None

    def _bytes(self, file: Path) -> bytes | None:
        try:
            return limits.read(file, limits.ENTRY_BYTES)
        except OSError as error:  # a running program may remove one
            self.damaged[file] = error.strerror or str(error)
        except RewriterError as error:
            self.damaged[file] = error.message
        return None


def _newest_first(files: dict[_Key, list[Path]]) -> dict[_Key, list[Path]]:
    for several in files.values():
        several.sort(key=_modified, reverse=True)
    return files


def _files(folder: Path) -> Iterator[Path]:
    """The entries in a folder and below, except those that are being written. A pipe is none: who
    opens it waits."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in sorted(names) if "." not in name):
            if path.is_file():
                yield path


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
