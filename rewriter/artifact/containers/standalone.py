"""The file that `torch._inductor.standalone_compile` saves as `binary`, named in its header.

It has a header, the hash of torch's own sources, and the mega-cache of one graph with its key;
since torch 2.10 with `aot=True`, one pickle instead, which has the whole graph. In 2.8 there is no
header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rewriter.artifact.containers import mega_cache
from rewriter.artifact.containers.byte_items import Item, ItemList, Reader, begins_with, damaged
from rewriter.artifact.containers.mega_cache import Entry
from rewriter.artifact.containers.types import Contents, Section
from rewriter.artifact.types import Form
from rewriter.core import pickle_reader

FORM = Form("standalone", "an artifact of standalone_compile", "binary")
AOT_FORM = Form("standalone-aot", "an artifact of standalone_compile(aot=True)", "binary")

_HEADER = b"CacheCompiledArtifact"
_AOT_HEADER = b"AOTCompiledArtifact"
_HASH_BYTES = 32


def read(data: bytes) -> Contents | None:
    """Read an artifact of either kind; `None` if a file does not begin like one."""
    if begins_with(data, _HEADER):
        return _read(data, has_header=True)
    if begins_with(data, _AOT_HEADER):
        return _read_aot(data)
    return _read(data, has_header=False) if _is_without_header(data) else None


def _read(data: bytes, *, has_header: bool) -> Contents:
    reader = Reader(data)
    reader.check()
    if has_header:
        reader.raw()
    reader.raw()
    key = reader.text_item()
    item = reader.item()
    _require_end(reader)
    inside, entries = mega_cache.read_entries(data, item.start, item.end)
    root = ItemList(0, len(data), (key, replace(item, inside=inside)))
    keys = tuple(_keys(key, entries))
    return Contents(FORM, data, root, mega_cache.sections(entries), entry_keys=keys)


def _keys(key: Item, entries: list[Entry]) -> Iterator[tuple[int, str]]:
    """The keys of a graph's entries at all places: torch loads the entries by these keys alone."""
    named = {entry.key.text or "" for entry in entries if entry.type in mega_cache.GRAPHS}
    for item in (key, *(entry.key for entry in entries)):
        if item.text in named:
            yield item.start, item.text or ""
    encoded = {text.encode(): text for text in named}
    for entry in entries:
        for pickle in entry.pickle.walk() if entry.pickle else ():
            for text in pickle.texts:
                if (raw := pickle.raw(text)) in encoded:
                    yield text.start, encoded[raw]


def _read_aot(data: bytes) -> Contents:
    reader = Reader(data)
    reader.check()
    reader.raw()
    reader.raw()
    item = reader.item()
    _require_end(reader)
    inside = pickle_reader.read(data, item.start, item.end)
    root = ItemList(0, len(data), (replace(item, inside=inside),))
    return Contents(AOT_FORM, data, root, (Section(inside),))


def _is_without_header(data: bytes) -> bool:
    """Whether a file is one of torch 2.8: a hash, the key of an entry of AOTAutograd, the rest."""
    reader = Reader(data)
    key_at = reader.position + 8 + _HASH_BYTES
    if len(data) < key_at + 8 or reader.number() != _HASH_BYTES:
        return False
    length = int.from_bytes(data[key_at : key_at + 8], "big")
    return length <= 256 and data[key_at + 8 : key_at + 9] == b"Y"  # how an `a` begins in base64


def _require_end(reader: Reader) -> None:
    if not reader.is_finished:
        raise damaged("bytes after its end", reader.position)
