"""What `torch.compile(f).aot_compile(...)` saves, and vLLM with it (torch/_dynamo/aot_compile.py).

One pickle, since torch 2.15 behind a few bytes. The compiled function is a pickle in it. In the
`model` of vLLM that is its own backend: a table from the pieces of the model to hashes, and one
from hashes to what was compiled for them, so that layers that are the same are stored once
(vllm/compilation/caching.py; the hashes are made when it is saved, and not compared again).
"""

from __future__ import annotations

import re

from rewriter.artifact.containers.types import Contents, Form, Section
from rewriter.core import pickle_reader
from rewriter.core.pickle_reader import Blob, Dictionary, Pickle, Text

FORM = Form("aot-compile", "a function saved by aot_compile")
VLLM_FORM = Form("vllm-model", "a model compiled by vLLM")

MAGIC = b"PT2AOT"
_PREFIX = len(MAGIC) + 1  # and the version
_COMPILED = b"compiled_fn"
_PIECES, _STORE = b"submodule_bytes", b"submodule_bytes_store"
_PIECE = re.compile(r"(\w+?)_(\(.*\)|[^_]*)")


def read(data: bytes) -> Contents | None:
    """Read a saved function; `None` where a file is none."""
    start = _PREFIX if data.startswith(MAGIC) else 0
    if start == 0 and not pickle_reader.begins(data):
        return None
    root = pickle_reader.read(data, start)
    if not start and not _has_key(root, _COMPILED):
        return None
    pieces = [one for part in root.walk() for one in _pieces(part)]
    if pieces:
        return Contents(VLLM_FORM, data, root, (*pieces, Section(root)))
    return Contents(FORM, data, root, (Section(root),))


def _has_key(pickle: Pickle, key: bytes) -> bool:
    return any(pickle.raw(name) == key for one in pickle.dictionaries for name, _ in one.items)


def _pieces(pickle: Pickle) -> list[Section]:
    """What was compiled for the pieces of a model, with all pieces that run it, in their order."""
    items = {pickle.raw(name): value for one in pickle.dictionaries for name, value in one.items}
    table, store = items.get(_PIECES), items.get(_STORE)
    if not isinstance(table, Dictionary) or not isinstance(store, Dictionary):
        return []
    runs: dict[bytes, list[str]] = {}
    for name, hash_ in table.items:
        if isinstance(hash_, Text):
            runs.setdefault(pickle.raw(hash_), []).append(pickle.text(name))
    compiled = {pickle.raw(name): value for name, value in store.items}
    sections = []
    for stored_as, names in runs.items():
        value = compiled.get(stored_as)
        if isinstance(value, Blob) and value.inside is not None:
            sections.append(Section(value.inside, _folder(names[0]), tuple(map(_piece, names))))
    return sections


def _piece(name: str) -> str:
    """A piece of a model with the sizes that it was compiled for: `submod_2 (1, 8192)`."""
    match = _PIECE.fullmatch(name)
    return f"{match[1]} {match[2]}" if match else name


def _folder(name: str) -> str:
    """The same as the name of a folder: `submod_2/1-8192`."""
    parts = (re.sub(r"\W+", "-", part).strip("-") for part in _piece(name).split(" ", 1))
    return "/".join(filter(None, parts)) or "piece"
