"""A mega-cache file: what `torch.compiler.save_cache_artifacts()` returns.

It has entries of caches, by type (torch/compiler/_cache.py). Inductor's contain wrappers; an entry
of AOTAutograd has the keys of the entries for its forward and backward, or contains them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rewriter.artifact.containers.byte_items import Item, ItemList, Reader, damaged
from rewriter.artifact.containers.types import Contents, Section
from rewriter.artifact.types import Form
from rewriter.core import pickle_reader
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import Pickle

FORM = Form("mega-cache", "a mega-cache file of torch.compiler.save_cache_artifacts")

_VERSION = 1
_INDUCTOR, _AOT_AUTOGRAD = "inductor", "aot_autograd"
# The types of entries that make up a graph.
GRAPHS = (_INDUCTOR, _AOT_AUTOGRAD)
# The types whose entries are pickles; the others have no wrappers.
_PICKLED = (_INDUCTOR, _AOT_AUTOGRAD, "precompile")
_TYPES = (*_PICKLED, "autotune", "pgo")


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a cache: its type, its key, and its content."""

    type: str
    key: Item
    item: Item

    @property
    def pickle(self) -> Pickle | None:
        return self.item.inside if isinstance(self.item.inside, Pickle) else None


def read(data: bytes) -> Contents | None:
    """Read a mega-cache file; `None` if it does not begin like one."""
    if not _begins(data):
        return None
    root, entries = read_entries(data)
    return Contents(FORM, data, root, sections(entries))


def read_entries(
    data: bytes, start: int = 0, end: int | None = None
) -> tuple[ItemList, list[Entry]]:
    """The entries of a mega-cache inside `data`."""
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
    """Whether a file begins like a mega-cache, with its version and a type of entries."""
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
    """The entries with wrappers, by graph: each entry of AOTAutograd is a graph of the model."""
    inductor = {
        (entry.key.text or "").encode(): entry for entry in entries if entry.type == _INDUCTOR
    }
    result = []
    for number, entry in enumerate(
        entry for entry in entries if entry.type != _INDUCTOR and entry.pickle
    ):
        assert entry.pickle is not None
        folder = f"graph_{number}"
        for key in _named(entry.pickle, inductor):
            found = inductor.pop(key).pickle
            assert found is not None
            result.append(Section(found, folder))
        result.append(Section(entry.pickle, folder))
    # Entries to which no entry of AOTAutograd refers are graphs of their own.
    count = len({section.folder for section in result})
    rest = (entry.pickle for entry in inductor.values() if entry.pickle is not None)
    result += [Section(pickle, f"graph_{number}") for number, pickle in enumerate(rest, count)]
    return tuple(result)


def _named(pickle: Pickle, inductor: dict[bytes, Entry]) -> list[bytes]:
    """The keys of Inductor's entries to which an entry of AOTAutograd refers, in its order."""
    texts = (value.raw(text) for value in pickle.walk() for text in value.texts)
    return list(dict.fromkeys(text for text in texts if text in inductor))
