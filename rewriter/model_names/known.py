"""Collects what logs, debug directories and cache entries say about the compilation of wrappers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import RewriterError

if TYPE_CHECKING:
    from rewriter.core.pickle_reader import Pickle
    from rewriter.model_names.entries.contained import ContainedEntries
    from rewriter.model_names.entries.index import EntryIndex
    from rewriter.model_names.entries.reading import CacheEntry
    from rewriter.model_names.trace import CompilationTrace

# Files that TORCH_COMPILE_DEBUG writes beside a wrapper: torch/_inductor/debug.py. The first is the
# graph as Inductor lowered it.
GRAPHS = ("fx_graph_transformed.py", "fx_graph_readable.py")
FRAGMENT = b"# Graph fragment:"  # begins the nodes that a kernel of a wrapper computes
_MAPPINGS = "inductor_provenance_tracking_node_mappings.json"


class Compilations:
    """What is known about the compilations of some wrappers; every source is read once."""

    def __init__(
        self, logs: Iterable[Path] = (), pickles: Mapping[Path, Sequence[Pickle]] = {}
    ) -> None:
        self._traces: dict[str, CompilationTrace] = {}
        for log in sorted(set(logs)):
            from rewriter.model_names import trace

            try:
                self._traces |= trace.read(log)
            except OSError:
                continue  # the wrappers could be read, but have no names
        self._indexes: dict[Path, EntryIndex] = {}
        self._contained: dict[Path, ContainedEntries] = {
            path: _entries(path, read) for path, read in pickles.items()
        }

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Compilations:
        """What is known about the wrappers of an artifact."""
        return cls(artifact.logs(), artifact.pickles())

    def _in_container(self, path: Path) -> ContainedEntries:
        """The entries of a container, which is read at the first call."""
        if path not in self._contained:
            from rewriter.artifact.containers.opening import open_container

            try:
                artifact = open_container(path)
            except RewriterError:
                artifact = None  # it was valid before: a program is replacing it
            read = {} if artifact is None else artifact.pickles()
            self._contained[path] = _entries(path, read.get(path, ()))
        return self._contained[path]

    @property
    def damaged(self) -> Iterator[tuple[Path, str]]:
        """Yield the entries that cannot be read, and why."""
        for index in self._indexes.values():
            yield from index.damaged.items()
        for contained in self._contained.values():
            yield from contained.damaged.items()

    def of_wrapper(self, wrapper: Wrapper) -> CompilationTrace | None:
        """What is known about a wrapper. A log is about this very program, so it comes first; a
        cache entry may be from another program with the same graph."""
        traced = None
        if self._traces:
            from rewriter.model_names import trace

            traced = self._traces.get(trace.digest(wrapper.restored.source))
        if traced is not None and traced.lowered and traced.traced:
            return traced
        others = self._of_entry(wrapper) or _beside(wrapper)
        return others if traced is None else traced.completed(others)

    def knows(self, wrapper: Wrapper) -> bool:
        """Whether anything is known about a wrapper, also by the comments in it."""
        return FRAGMENT in wrapper.source or self.of_wrapper(wrapper) is not None

    def partner(self, wrapper: Wrapper, groups: Mapping[str, Sequence[Wrapper]]) -> str:
        """The file name of the other direction's wrapper, for a wrapper that a model is trained
        with; empty if not known. `groups` are those of `grouped`."""
        if wrapper.graph == "inference":
            return ""
        # In a container wrappers have other names.
        if not wrapper.stored.places and (found := self._entry(wrapper)) is not None:
            index, entry = found
            if (pair := index.autograd(entry)) is not None:
                keys = [index.wrapper_of(key) for key in (pair.forward, pair.backward)]
                other = next((key for key in keys if key and key != entry.cache_key), "")
                return f"{other}{wrapper.path.suffix}" if other else ""
        same = groups.get(_group(wrapper), ())
        kinds = [x.graph for x in same]
        if sorted(kinds) != ["backward", "forward"]:
            return ""
        return next(x.name for x in same if x.graph != wrapper.graph)

    def graph_text(self, wrapper: Wrapper, partner: str) -> str:
        """The graph of the forward of a wrapper's pair, from an entry of its cache."""
        if (found := self._entry(wrapper)) is None:
            return ""
        other = found[0].of_wrapper(Path(partner).stem)
        return other.lowered if other is not None else ""

    def guards(self, wrapper: Wrapper) -> str:
        """The condition on its integers under which a wrapper is valid, from its entry."""
        found = self._entry(wrapper)
        return found[1].guards if found is not None else ""

    def _entry(self, wrapper: Wrapper) -> tuple[EntryIndex | ContainedEntries, CacheEntry] | None:
        if wrapper.stored.places:
            contained = self._in_container(wrapper.file)
            entry = contained.of_wrapper(wrapper.stored.key)
            return None if entry is None else (contained, entry)
        # By its name, as most files have one that no cache gives.
        if not wrapper.has_file or wrapper.path.parent.name != wrapper.path.stem[1:3]:
            return None
        from rewriter.model_names.entries.index import EntryIndex, cache_of

        if (cache := cache_of(wrapper.path)) is None:
            return None
        index = self._indexes.setdefault(cache, EntryIndex(cache))
        entry = index.of_wrapper(wrapper.path.stem)
        return None if entry is None else (index, entry)

    def _of_entry(self, wrapper: Wrapper) -> CompilationTrace | None:
        if (found := self._entry(wrapper)) is None:
            return None
        index, entry = found
        traced = ""
        # For the inputs of an inference, AOTAutograd's graph says nothing more.
        if wrapper.graph != "inference" or not entry.lowered:
            pair = index.autograd(entry)
            if pair is not None:
                is_backward = pair.backward in (entry.fx_key, entry.cache_key)
                traced = pair.backward_graph if is_backward else pair.forward_graph
        from rewriter.model_names.trace import CompilationTrace

        return CompilationTrace(
            traced=traced, lowered=entry.lowered or traced, line_map=entry.line_map
        )


def _entries(path: Path, pickles: Iterable[Pickle]) -> ContainedEntries:
    from rewriter.model_names.entries.contained import ContainedEntries

    return ContainedEntries(path, pickles)


def grouped(wrappers: Iterable[Wrapper]) -> dict[str, list[Wrapper]]:
    """The forwards and backwards of some wrappers, grouped by compilation."""
    groups: dict[str, list[Wrapper]] = {}
    for wrapper in wrappers:
        if wrapper.graph != "inference" and (group := _group(wrapper)):
            groups.setdefault(group, []).append(wrapper)
    return groups


def _group(wrapper: Wrapper) -> str:
    """What the wrappers of one compilation have in common, in a log or a debug directory."""
    if not wrapper.has_file:
        return f"{wrapper.file}:{wrapper.name.rpartition('/')[0]}"
    # `model__0_forward_1.0` and `model__0_backward_3.1`: torch/_inductor/debug.py.
    head, found, _ = wrapper.path.parent.name.rpartition(f"_{wrapper.graph}_")
    return str(wrapper.path.parent.with_name(head)) if found and head else ""


def _beside(wrapper: Wrapper) -> CompilationTrace | None:
    """What the files beside a wrapper in a debug directory say."""
    folder = wrapper.path.parent
    text = next(filter(None, (_text(folder / name) for name in GRAPHS)), "")
    if not text:
        return None
    from rewriter.model_names import trace

    return trace.CompilationTrace(lowered=text, mappings=trace.mappings(_text(folder / _MAPPINGS)))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        from rewriter.model_names.graph import MOST_BYTES

        if path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
