"""A mega-cache file: what `torch.compiler.save_cache_artifacts()` returns.

Entries of caches, by type (torch/compiler/_cache.py). Wrappers are in those of Inductor; an entry
of AOTAutograd names the entries of its forward and backward by their keys, or holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rewriter.artifact.containers.byte_items import Item, ItemList, Reader, damaged
from rewriter.artifact.containers.types import Contents, Form, Section
from rewriter.core import pickle_reader
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import Pickle

FORM = Form("mega-cache", "a mega-cache file of torch.compiler.save_cache_artifacts")

_VERSION = 1
_INDUCTOR, _AOT_AUTOGRAD = "inductor", "aot_autograd"
# The types whose entries make a graph.
GRAPHS = (_INDUCTOR, _AOT_AUTOGRAD)
# The types whose entries are pickles; the others hold no wrapper.
_PICKLED = (_INDUCTOR, _AOT_AUTOGRAD, "precompile")
_TYPES = (*_PICKLED, "autotune", "pgo")


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a cache: its type, its key, and what stands under that."""

    type: str
    key: Item
    item: Item

    @property
    def pickle(self) -> Pickle | None:
        return self.item.inside if isinstance(self.item.inside, Pickle) else None


def read(data: bytes) -> Contents | None:
    """Read a mega-cache file; `None` where it does not begin as one."""
    if not _begins(data):
        return None
    root, entries = read_entries(data)
    return Contents(FORM, data, root, sections(entries))


def read_entries(
    data: bytes, start: int = 0, end: int | None = None
) -> tuple[ItemList, list[Entry]]:
    """The entries of a mega-cache that stands in `data`."""
    reader = Reader(data, start, end)
    reader.check()
    if reader.number() != _VERSION:
        raise damaged("a version that is not 1", start)
    entries: list[Entry] = []
    while not reader.is_finished:
        type_ = reader.text()
        for _ in range(reader.number()):
            entries.append(Entry(type_, reader.text_item(), _item(reader, type_)))
    items = tuple(item for entry in entries for item in (entry.key, entry.item))
    return ItemList(start, reader.end, items), entries


def _begins(data: bytes) -> bool:
    """Whether a file begins as a mega-cache does: its version, and a type of entries."""
    reader = Reader(data)
    if len(data) < 64 or reader.number() != _VERSION:
        return False
    length = int.from_bytes(data[reader.position : reader.position + 8], "big")
    return length <= 64 and _is_type(reader)


def _is_type(reader: Reader) -> bool:
    try:
        return reader.text() in _TYPES
    except RewriterError:
        return False


def _item(reader: Reader, type_: str) -> Item:
    item = reader.item()
    if type_ not in _PICKLED:
        return item
    return replace(item, inside=pickle_reader.read(reader.data, item.start, item.end))


def sections(entries: list[Entry]) -> tuple[Section, ...]:
    """The entries with wrappers, graph by graph: an entry of AOTAutograd is one of the model's."""
    inductor = {(one.key.text or "").encode(): one for one in entries if one.type == _INDUCTOR}
    result = []
    for number, entry in enumerate(one for one in entries if one.type != _INDUCTOR and one.pickle):
        assert entry.pickle is not None
        folder = f"graph_{number}"
        for key in _named(entry.pickle, inductor):
            found = inductor.pop(key).pickle
            assert found is not None
            result.append(Section(found, folder))
        result.append(Section(entry.pickle, folder))
    # What no entry of AOTAutograd names, each a graph of its own.
    count = len({one.folder for one in result})
    rest = (one.pickle for one in inductor.values() if one.pickle is not None)
    result += [Section(one, f"graph_{number}") for number, one in enumerate(rest, count)]
    return tuple(result)


def _named(pickle: Pickle, inductor: dict[bytes, Entry]) -> list[bytes]:
    """The keys of Inductor's entries that an entry of AOTAutograd names, in its order."""
    texts = (one.raw(text) for one in pickle.walk() for text in one.texts)
    return list(dict.fromkeys(text for text in texts if text in inductor))
