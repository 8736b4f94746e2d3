"""Which lines about memory can leave their work to the next one.

A launch is followed by up to three lines that have a GPU do something: bands are compared, what is
given up is filled, and so is what is allocated. If nothing between two of them reads, writes or
frees memory on its own, one kernel does the work of both (`MemoryWork` in
rewriter/runtime/cpp/engine/bands.h).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rewriter.instrumentation.dialect import Dialect


@dataclass(frozen=True)
class MemoryLine:
    """A line about memory: the offset in the plain source where it stands, and its indent.

    `event` is the index of the memory event, `launch` that of the launch behind which bands are
    compared; the other one is `None`.
    """

    offset: int
    indent: bytes
    event: int | None = None
    launch: int | None = None


def waiting(data: bytes, lines: Iterable[MemoryLine], dialect: Dialect) -> frozenset[MemoryLine]:
    """The lines of one source that can wait for the next one of `lines`, which are all there are,
    in their order."""
    return frozenset(
        line
        for line, following in pairwise(lines)
        if following.launch is None
        and line.indent == following.indent
        and dialect.is_bookkeeping(data[line.offset : following.offset], line.indent)
    )
