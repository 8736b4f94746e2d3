"""Short names of wrappers, whose own names are hashes; and the labels of wrappers in printed lines
if several print into one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePath

_LONG = 14  # characters of a name that a table or a command shows
_SHORT = 6  # characters that identify a hash, as `rewriter cache` accepts them


def short(name: str | PurePath) -> str:
    """The beginning of a wrapper's name, which identifies it in a table, and as a glob."""
    return PurePath(name).stem[:_LONG]


def beginning(name: str) -> str:
    """The beginning of a file's name in a sentence about a wrapper."""
    return name[:_LONG]


def labels(wrappers: Sequence[tuple[str, str]]) -> list[str]:
    """A label for each wrapper, given by its graph and its name: `forward`, or `forward cbgu5p`
    if there are several of that graph. Empty for a single wrapper."""
    if len(wrappers) < 2:
        return [""] * len(wrappers)
    graphs: dict[str, list[str]] = {}
    for graph, name in wrappers:
        graphs.setdefault(graph, []).append(name)
    stems = {graph: Counter(map(_own, set(names))) for graph, names in graphs.items()}
    short = {graph: _shortened(counts) for graph, counts in stems.items()}
    folders = _shortened({_folder(name) for _, name in wrappers})
    result = []
    for graph, name in wrappers:
        own, folder = _own(name), _folder(name)
        if len(set(graphs[graph])) == 1:
            result.append(graph)
        elif stems[graph][own] > 1 and folder:  # the same name, in different directories
            result.append(f"{graph} {folders[folder]}")
        else:
            result.append(f"{graph} {short[graph][own]}")
    return result


def _shortened(texts: Iterable[str]) -> dict[str, str]:
    """The beginning of each text, as long as it takes to tell it from the others."""
    ordered = sorted(texts)
    shared = [_shared(*pair) for pair in pairwise(ordered)]
    lengths = map(max, zip([0, *shared], [*shared, 0], strict=True))
    return {
        text: _printable(text[: max(_SHORT, length + 1)])
        for text, length in zip(ordered, lengths, strict=True)
    }


def _shared(a: str, b: str) -> int:
    """How many characters two texts begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def _folder(name: str) -> str:
    return PurePath(name).parent.name


def _own(name: str) -> str:
    return PurePath(name).stem


def _printable(text: str) -> str:
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)
