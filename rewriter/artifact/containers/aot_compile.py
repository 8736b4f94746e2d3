"""The files that `torch.compile(f).aot_compile(...)` saves, also for vLLM.

The file is one pickle, since torch 2.15 after a few bytes, and contains the compiled function as
another pickle (torch/_dynamo/aot_compile.py). In the `model` of vLLM, which has its own backend,
that has a table from the pieces of the model to hashes, and one from hashes to what was compiled
for them, so that equal layers are stored once (vllm/compilation/caching.py; the hashes are made
when the file is saved, and not compared later).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rewriter.artifact.containers.types import Contents, Section
from rewriter.artifact.types import Form
from rewriter.core import limits, pickle_reader
from rewriter.core.pickle_reader import Blob, Dictionary, Pickle, Text, Value

FORM = Form("aot-compile", "a function saved by aot_compile", "function")
VLLM_FORM = Form("vllm-model", "a model compiled by vLLM")

MAGIC = b"PT2AOT"
_PREFIX = len(MAGIC) + 1  # with the version
_COMPILED = b"compiled_fn"
_PIECES, _STORE = b"submodule_bytes", b"submodule_bytes_store"
_CALL = re.compile(r"^ *\w+ = self\.(submod_\d+)\(([^()\n]*)\)", re.MULTILINE)
_PIECE = re.compile(r"(\w+?)_(\(.*\)|[^_]*)")


def read(data: bytes) -> Contents | None:
    """Read a saved function; `None` if a file is not one."""
    start = _PREFIX if data.startswith(MAGIC) else 0
    if start == 0 and (not pickle_reader.begins(data) or _COMPILED not in data):
        return None
    root = pickle_reader.read(data, start)
    if not start and _COMPILED not in _items(root):
        return None
    pieces = _pieces(root)
    if pieces:
        return Contents(VLLM_FORM, data, root, (*pieces, Section(root)))
    return Contents(FORM, data, root, (Section(root),))


def _items(pickle: Pickle) -> dict[bytes, Value]:
    """The items of all dictionaries of a pickle."""
    return {pickle.raw(name): value for items in pickle.dictionaries for name, value in items.items}


def _pieces(root: Pickle) -> list[Section]:
    """The artifacts that were compiled for a model, with the pieces that run each, in order."""
    sections: list[Section] = []
    layers = layers_by_piece(root)
    for pickle in root.walk():
        items = _items(pickle)
        table, store = items.get(_PIECES), items.get(_STORE)
        if isinstance(table, Dictionary) and isinstance(store, Dictionary):
            sections += _stored(pickle, table, store, layers)
    return sections


def _stored(
    pickle: Pickle, table: Dictionary, store: Dictionary, layers: Mapping[str, tuple[str, ...]]
) -> Iterator[Section]:
    runs: dict[bytes, list[str]] = {}
    for name, hash_ in table.items:
        if isinstance(hash_, Text):
            runs.setdefault(pickle.raw(hash_), []).append(pickle.text(name))
    compiled = {pickle.raw(name): value for name, value in store.items}
    for stored_as, names in runs.items():
        value = compiled.get(stored_as)
        if isinstance(value, Blob) and value.inside is not None:
            pieces = tuple(map(_piece, names))
            modules = dict.fromkeys(piece.split(" ")[0] for piece in pieces)
            used = (layer for module in modules for layer in layers.get(module, ()))
            unique = tuple(dict.fromkeys(used))
            yield Section(value.inside, _folder(names[0]), pieces, unique)


def layers_by_piece(root: Pickle) -> dict[str, tuple[str, ...]]:
    """The layers whose weights each piece is called with, by the code of the graph that calls it.

    Dynamo names a weight after its place in the model: `l_self_modules_layers_modules_3_modules_…`.
    """
    layers: dict[str, tuple[str, ...]] = {}
    for pickle in root.walk():
        for text in pickle.texts:
            code = pickle.raw(text)
            if b" = self.submod_" not in code or len(code) > limits.WRAPPER_BYTES:
                continue
            for call in _CALL.finditer(code.decode("utf-8", "replace")):
                names = (_layer(argument.strip()) for argument in call[2].split(","))
                layers[call[1]] = tuple(dict.fromkeys(filter(None, names)))
    return layers


def _layer(weight: str) -> str:
    """The numbered module that a weight belongs to, such as `layers.3`; empty if there is none."""
    parts = weight.split("_modules_") if weight.isidentifier() else []
    numbers = (number for number in range(1, len(parts)) if parts[number].isdecimal())
    at = next(numbers, 0)
    return f"{parts[at - 1]}.{parts[at]}" if at else ""


def _piece(name: str) -> str:
    """A piece of a model with the sizes it was compiled for: `submod_2 (1, 8192)`."""
    name = "".join(text if text.isascii() and text.isprintable() else "?" for text in name)
    match = _PIECE.fullmatch(name)
    return f"{match[1]} {match[2]}" if match else name


def _folder(name: str) -> str:
    """The same as the name of a folder: `submod_2/1-8192`."""
    parts = (re.sub(r"\W+", "-", part).strip("-") for part in _piece(name).split(" ", 1))
    return "/".join(filter(None, parts)) or "piece"
