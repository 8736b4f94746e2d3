"""What `torch.compile(f).aot_compile(...)` saves, and vLLM with it (torch/_dynamo/aot_compile.py).

One pickle, since torch 2.15 behind a few bytes. The compiled function is a pickle in it. In the
`model` of vLLM that is its own backend: a table from the pieces of the model to hashes, and one
from hashes to what was compiled for them, so that layers that are the same are stored once
(vllm/compilation/caching.py; the hashes are made when it is saved, and not compared again).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rewriter.artifact.containers.types import Contents, Form, Section
from rewriter.core import limits, pickle_reader
from rewriter.core.pickle_reader import Blob, Dictionary, Pickle, Text

FORM = Form("aot-compile", "a function saved by aot_compile")
VLLM_FORM = Form("vllm-model", "a model compiled by vLLM")

MAGIC = b"PT2AOT"
_PREFIX = len(MAGIC) + 1  # and the version
_COMPILED = b"compiled_fn"
_PIECES, _STORE = b"submodule_bytes", b"submodule_bytes_store"
_CALL = re.compile(r"^ *\w+ = self\.(submod_\d+)\(([^()\n]*)\)", re.MULTILINE)
_PIECE = re.compile(r"(\w+?)_(\(.*\)|[^_]*)")


def read(data: bytes) -> Contents | None:
    """Read a saved function; `None` where a file is none."""
    start = _PREFIX if data.startswith(MAGIC) else 0
    if start == 0 and (not pickle_reader.begins(data) or _COMPILED not in data):
        return None
    root = pickle_reader.read(data, start)
    if not start and not _has_key(root, _COMPILED):
        return None
    pieces = _pieces(root)
    if pieces:
        return Contents(VLLM_FORM, data, root, (*pieces, Section(root)))
    return Contents(FORM, data, root, (Section(root),))


def _has_key(pickle: Pickle, key: bytes) -> bool:
    return any(pickle.raw(name) == key for one in pickle.dictionaries for name, _ in one.items)


def _pieces(root: Pickle) -> list[Section]:
    """What was compiled for the pieces of a model, with all pieces that run it, in their order."""
    sections: list[Section] = []
    layers = layers_by_piece(root)
    for pickle in root.walk():
        items = {
            pickle.raw(name): value for one in pickle.dictionaries for name, value in one.items
        }
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
            used = (one for module in modules for one in layers.get(module, ()))
            unique = tuple(dict.fromkeys(used))
            yield Section(value.inside, _folder(names[0]), pieces, unique)


def layers_by_piece(root: Pickle) -> dict[str, tuple[str, ...]]:
    """The layers whose weights each piece is called with, by the code of the graph that calls them.

    Dynamo calls a weight `l_self_modules_layers_modules_3_modules_…` after its place in the model.
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
    """The numbered module that a weight is of, such as `layers.3`; empty if it is of none."""
    parts = weight.split("_modules_") if weight.isidentifier() else []
    numbers = (number for number in range(1, len(parts)) if parts[number].isdecimal())
    at = next(numbers, 0)
    return f"{parts[at - 1]}.{parts[at]}" if at else ""


def _piece(name: str) -> str:
    """A piece of a model with the sizes that it was compiled for: `submod_2 (1, 8192)`."""
    name = "".join(one if one.isascii() and one.isprintable() else "?" for one in name)
    match = _PIECE.fullmatch(name)
    return f"{match[1]} {match[2]}" if match else name


def _folder(name: str) -> str:
    """The same as the name of a folder: `submod_2/1-8192`."""
    parts = (re.sub(r"\W+", "-", part).strip("-") for part in _piece(name).split(" ", 1))
    return "/".join(filter(None, parts)) or "piece"
