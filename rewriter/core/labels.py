"""Short names of wrappers, whose own names are hashes; and the labels of wrappers in printed lines
if several print into one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
    own_names = {graph: _Parts(names, _own) for graph, names in graphs.items()}
    folders = _Parts([name for _, name in wrappers], _folder)
    result = []
    for graph, name in wrappers:
        parts = own_names[graph]
        if parts.is_alone(name):
            result.append(graph)
            continue
        own = _own(name)
        if parts.others(name, own):  # files with the same name, in different directories
            own, parts = _folder(name) or own, folders
        length = _SHORT
        while length < len(own) and parts.others(name, own[:length], length):
            length += 1
        result.append(f"{graph} {_printable(own[:length])}")
    return result


class _Parts:
    """One part of each of several names, compared by its beginning."""

    def __init__(self, names: Sequence[str], part: Callable[[str], str]) -> None:
        self._part = part
        self._names = Counter(names)
        self._parts = [part(name) for name in names]
        self._beginnings: dict[int | None, Counter[str]] = {}

    def is_alone(self, name: str) -> bool:
        """Whether there is no other name."""
        return self._names[name] == len(self._parts)

    def others(self, name: str, text: str, length: int | None = None) -> bool:
        """Whether the part of another name is `text`, or has the same first `length` characters."""
        if length not in self._beginnings:
            self._beginnings[length] = Counter(part[:length] for part in self._parts)
        mine = self._names[name] if self._part(name)[:length] == text else 0
        return self._beginnings[length][text] > mine


def _folder(name: str) -> str:
    return PurePath(name).parent.name


def _own(name: str) -> str:
    return PurePath(name).stem


def _printable(text: str) -> str:
    return "".join(one if one.isascii() and one.isprintable() else "?" for one in text)
