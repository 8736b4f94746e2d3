"""Short names of wrappers, whose own are hashes; and what the lines of a print call a wrapper
where several print into one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

_LONG = 14  # characters of a name that a table or a command shows
_SHORT = 6  # characters of a hash that tell it from others, as `rewriter cache` takes them


def short(name: str | PurePath) -> str:
    """The beginning of a wrapper's name, which tells it from others in a table, and as a glob."""
    return PurePath(name).stem[:_LONG]


def labels(wrappers: Sequence[tuple[str, str]]) -> list[str]:
    """A label for each wrapper, given by its graph and its name: `forward`, or `forward cbgu5p`
    where there are several of that graph. Empty for one alone."""
    if len(wrappers) < 2:
        return [""] * len(wrappers)
    graphs = Counter(graph for graph, _ in wrappers)
    result = []
    for graph, name in wrappers:
        others = [_own(other) for kind, other in wrappers if kind == graph and other != name]
        if graphs[graph] == 1 or not others:
            result.append(graph)
            continue
        own = _own(name)
        if own in others:  # files of one name, in directories of their own
            own = PurePath(name).parent.name or own
            others = [PurePath(other).parent.name for kind, other in wrappers if other != name]
        length = _SHORT
        while length < len(own) and any(other.startswith(own[:length]) for other in others):
            length += 1
        result.append(f"{graph} {_printable(own[:length])}")
    return result


def _own(name: str) -> str:
    return PurePath(name).stem


def _printable(text: str) -> str:
    return "".join(one if one.isascii() and one.isprintable() else "?" for one in text)
