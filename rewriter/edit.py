"""Applies insertions to bytes, takes them out again, and verifies that nothing else changed."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from rewriter import markers
from rewriter.errors import FAILED, RewriterError
from rewriter.types import Insertion


def apply(data: bytes, insertions: Iterable[Insertion]) -> bytes:
    """Put every insertion at its offset of `data`; those at one offset keep their order."""
    pieces = []
    position = 0
    for insertion in sorted(insertions, key=lambda one: one.offset):
        if not position <= insertion.offset <= len(data):
            raise ValueError(f"{insertion.origin}: offset {insertion.offset} is not in the file")
        pieces += [data[position : insertion.offset], insertion.text]
        position = insertion.offset
    return b"".join([*pieces, data[position:]])


class Restored(NamedTuple):
    """What is left without the probes.

    `kept` are the numbers (from 1) of the lines that stayed, `exact` tells whether `source` is
    what was instrumented.
    """

    source: bytes
    kept: list[int]
    exact: bool


def strip(data: bytes) -> Restored:
    """Give back the original. A plain file comes back as it is."""
    header = markers.find_header(data)
    if header is None:
        return Restored(data, list(range(1, len(markers.lines(data)) + 1)), True)
    original, kept = markers.remove(data, header.tag)
    return Restored(original, kept, hashlib.sha256(original).hexdigest() == header.sha256)


def verify_python(name: str, original: bytes, instrumented: bytes) -> None:
    """Check what the command promises before anything is written.

    The result must parse, and stripping it must give back the original. A failure here is a
    defect of this program, not of the input.
    """
    try:
        ast.parse(instrumented.decode("utf-8-sig"))
    except SyntaxError as error:
        raise RewriterError(
            "verification-failed",
            f"{name}: the instrumented file does not parse: line {error.lineno}: {error.msg}",
            hint="Nothing was written. Please report this with the wrapper.",
            code=FAILED,
        ) from error
    restored = strip(instrumented)
    if restored.source != original or not restored.exact:
        raise RewriterError(
            "verification-failed",
            f"{name}: stripping the instrumented file would not give back the original",
            hint="Nothing was written. Please report this with the wrapper.",
            code=FAILED,
        )
