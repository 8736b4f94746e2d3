"""The cache entries inside a container: graphs in its pickles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewriter.core import pickle_values
from rewriter.core.pickle_reader import Pickle
from rewriter.core.pickle_values import PickleError
from rewriter.model_names.entries.reading import (
    AutogradEntry,
    CacheEntry,
    autograd_in,
    graphs_in,
)


class ContainedEntries:
    """The entries in some pickles, and in the pickles inside these."""

    def __init__(self, path: Path, pickles: Iterable[Pickle]) -> None:
        self._graphs: dict[str, CacheEntry] = {}
        self._autograd: dict[str, AutogradEntry] = {}
        self.damaged: dict[Path, str] = {}
        seen: set[int] = set()
        for pickle in (inner for outer in pickles for inner in outer.walk()):
            if pickle.start in seen:
                continue
            seen.add(pickle.start)
            try:
                value = pickle_values.read(pickle.data[pickle.start : pickle.end])
            except PickleError as error:
                self.damaged[path] = str(error)
                continue
            for graph in graphs_in(value):
                self._graphs.setdefault(graph.cache_key, graph)
            for result in autograd_in(value):
                for key in filter(None, (result.forward, result.backward)):
                    self._autograd.setdefault(key, result)

    def of_wrapper(self, key: str) -> CacheEntry | None:
        """The entry of a wrapper, by the key that torch names its file after."""
        return self._graphs.get(key)

    def autograd(self, entry: CacheEntry) -> AutogradEntry | None:
        """The result of AOTAutograd that refers to a graph."""
        return self._autograd.get(entry.fx_key) or self._autograd.get(entry.cache_key)

    def wrapper_of(self, key: str) -> str:
        """The wrapper of a graph, by the key of the graph or of the wrapper; empty if not known."""
        if key in self._graphs:
            return key
        return next((graph.cache_key for graph in self._graphs.values() if graph.fx_key == key), "")
