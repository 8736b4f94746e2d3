"""Directories that torch or vLLM loads as a whole, and the names of their parts in vLLM.

`standalone_compile` saves an artifact as a directory: one entry in `aotautograd/`, those that it
refers to in `fxgraph/`, and the wrappers (torch/_inductor/standalone_compile.py). vLLM writes one
directory for each rank, with an index (vllm/compilation/backends.py) that says for which piece of
the model, and for which numbers of tokens, each artifact is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rewriter.artifact.types import Form
from rewriter.core import limits

INDEX = "vllm_compile_cache.py"
MODEL = "model"  # the file of each rank if vLLM compiles ahead of time
GRAPH = "computation_graph.py"  # the text of the graph that vLLM split
_INDEX_BYTES = 16 << 20  # a few hundred entries of 200 bytes are usual

# An artifact that is known by its name alone, which is the same wherever vLLM writes one.
_ARTIFACT = re.compile(
    r"artifact_(?:shape|compile_range)_(?P<sizes>\w+|\(\d+, \d+\))_subgraph_(?P<piece>\d+)"
)
_SIZES = re.compile(r"\(?(\d+)(?:_|, )(\d+)\)?")
_SUBMODULE = re.compile(r"\bself\.submod_(\d+)\b")


STANDALONE = Form("standalone", "an unpacked artifact of standalone_compile", "unpacked")
VLLM = Form(
    "vllm",
    "a cache directory of vLLM",
    note=f"note: {INDEX} names artifacts by absolute paths: vLLM takes those of the copy only if "
    "it replaces the original",
)


@dataclass(frozen=True)
class Piece:
    """The artifact for a piece of a model: a file or a directory.

    `names` are those of all pieces that it is for, such as `submod_2 (1, 8192)`. The sizes are the
    smallest and the largest number of tokens, or a single number; none if it is for any number.
    """

    path: Path
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The start of its wrappers' names: `submod_2/1-8192`, `submod_2/1-8192+30`."""
        name, _, sizes = self.names[0].partition(" ")
        sizes = re.sub(r"\W+", "-", sizes).strip("-")
        more = f"+{len(self.names) - 1}" if len(self.names) > 1 else ""
        return (f"{name}/{sizes}" if sizes else name) + more


def is_standalone(folder: Path) -> bool:
    """Whether a directory is an unpacked artifact, by the same test as torch's loader."""
    keys = folder / "aotautograd"
    return keys.is_dir() and (folder / "fxgraph").is_dir() and len(list(keys.iterdir())) == 1


def pieces(index: Path) -> list[Piece]:
    """The artifacts in the directory of an index, with the pieces of the model that they are for.

    Artifacts that are not in the index keep their own names. Nothing is executed. Raises
    `ValueError` if the index is not a literal.
    """
    folder, names = index.parent, _submodules(index.with_name(GRAPH))
    found: dict[Path, dict[str, None]] = {}
    for sizes, number, handle in _entries(index):
        if path := _place(folder, _texts(handle)):
            found.setdefault(path, {})[_name(number, sizes, names)] = None
    for path in sorted(folder.iterdir()):
        if path not in found and (match := _ARTIFACT.fullmatch(path.name)):
            found[path] = {_name(int(match["piece"]), _sizes(match["sizes"]), names): None}
    return [Piece(path, tuple(labels)) for path, labels in found.items()]


def _entries(index: Path) -> Iterator[tuple[Any, int, Any]]:
    """Yield the sizes, the number of the piece, and the index's description of its artifact."""
    try:
        content = ast.literal_eval(limits.read(index, _INDEX_BYTES).decode())
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"no literal of Python: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"a dictionary was expected, not {type(content).__name__}")
    for key, handle in content.items():
        if not (isinstance(key, tuple) and len(key) == 3 and isinstance(key[1], int)):
            raise ValueError(f"{key!r:.100} names no piece of a model")
        yield key[0], key[1], handle


def _texts(handle: Any) -> Iterator[str]:
    """The strings in the index's description of an artifact, whose form depends on the vLLM."""
    if isinstance(handle, str):
        yield handle
    elif isinstance(handle, (tuple, list)):
        for part in handle:
            yield from _texts(part)
    elif isinstance(handle, dict):
        yield from _texts(list(handle.values()))


def _place(folder: Path, texts: Iterable[str]) -> Path | None:
    """The place of an artifact whose path is in the index: the directory may have been moved."""
    for text in texts:
        parts, name = PurePosixPath(text).parts, PurePosixPath(text).name
        if not name or ".." in parts:
            continue
        below = [folder / name]
        # A wrapper in the cache of the rank, or of this part of the model.
        if "inductor_cache" in parts:
            tail = Path(*parts[parts.index("inductor_cache") :])
            below = [folder / tail, folder.parent / tail]
        for path in below:
            if path.exists():
                return path
    return None


def _submodules(graph: Path) -> list[int]:
    """The submodules that vLLM compiles, from the text of the graph that calls them.

    vLLM splits a model at some operators, which become submodules with odd numbers.
    """
    if not graph.is_file():
        return []
    text = limits.read(graph, limits.WRAPPER_BYTES).decode("utf-8", "replace")
    return sorted({number for x in _SUBMODULE.findall(text) if not (number := int(x)) % 2})


def _name(piece: int, sizes: Any, submodules: list[int]) -> str:
    known = 0 <= piece < len(submodules)
    name = f"submod_{submodules[piece]}" if known else f"subgraph_{piece}"
    if isinstance(sizes, tuple) and len(sizes) == 2:
        return f"{name} ({sizes[0]}, {sizes[1]})"
    return f"{name} ({sizes})" if isinstance(sizes, int) else name


def _sizes(text: str) -> Any:
    """The sizes in the form that an index has, from the name of an artifact."""
    if match := _SIZES.fullmatch(text):
        return int(match[1]), int(match[2])
    return int(text) if text.isdigit() else None
