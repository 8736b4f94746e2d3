"""Finds memory lines that can leave their work to the next memory line.

A launch is followed by up to three lines that start work on the GPU: guard bands are compared,
released buffers are filled, and so are new ones. If nothing between two such lines reads, writes or
frees memory, one kernel does the work of both (`MemoryWork` in
rewriter/runtime/cpp/engine/bands.h).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rewriter.instrumentation.dialect import Dialect


@dataclass(frozen=True)
class MemoryLine:
    """A memory line: its offset in the plain source, and its indent.

    Either `event` is the index of its memory event, or `launch` that of the launch after which
    guard bands are compared.
    """

    offset: int
    indent: bytes
    event: int | None = None
    launch: int | None = None


def waiting(data: bytes, lines: Iterable[MemoryLine], dialect: Dialect) -> frozenset[MemoryLine]:
    """The memory lines that can wait for the next one. `lines` are all of one source, in order."""
    return frozenset(
        line
        for line, following in pairwise(lines)
        if following.launch is None
        and line.indent == following.indent
        and dialect.is_bookkeeping(data[line.offset : following.offset], line.indent)
    )
