"""Applies insertions to bytes, and removes them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rewriter.core import markers
from rewriter.core.source import Source


@dataclass(frozen=True, order=True)
class Insertion:
    """Text to put at a byte offset. `origin` names its author, for error messages."""

    offset: int
    text: bytes = field(compare=False)
    origin: str = field(compare=False)


def apply(data: bytes, insertions: Iterable[Insertion]) -> bytes:
    """Insert every text at its offset in `data`; those at the same offset keep their order."""
    pieces = []
    position = 0
    for insertion in sorted(insertions, key=lambda x: x.offset):
        if not position <= insertion.offset <= len(data):
            raise ValueError(f"{insertion.origin}: offset {insertion.offset} is not in the file")
        pieces += [data[position : insertion.offset], insertion.text]
        position = insertion.offset
    return b"".join([*pieces, data[position:]])


def line_origins(
    source: Source, insertions: Iterable[Insertion]
) -> list[tuple[int, Insertion | None]]:
    """For each line of a source with insertions, its number without them, and what inserted it: an
    inserted line has the number of the line below it."""
    lines: list[tuple[int, Insertion | None]] = []
    following = 1
    for insertion in sorted(insertions, key=lambda insertion: insertion.offset):
        line = source.line_of(insertion.offset)
        lines += [(number, None) for number in range(following, line)]
        lines += [(line, insertion)] * len(markers.lines(insertion.text))
        following = line
    end = source.line_of(len(source.data))
    return lines + [(number, None) for number in range(following, end + 1)]


class Restored(NamedTuple):
    """A source without its probes.

    `kept` are the numbers (from 1) of the remaining lines; `exact`: `source` is the original that
    was instrumented.
    """

    source: bytes
    kept: list[int]
    exact: bool


def strip(data: bytes) -> Restored:
    """Restore the original. A plain file is returned unchanged."""
    header = markers.find_header(data)
    if header is None:
        return Restored(data, list(range(1, len(markers.lines(data)) + 1)), True)
    original, kept = markers.remove(data, header.tag)
    return Restored(original, kept, hashlib.sha256(original).hexdigest() == header.sha256)
