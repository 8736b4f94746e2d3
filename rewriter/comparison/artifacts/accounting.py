"""Accounts for every line of two wrappers: equal, equal except for names, or on one side only.

The lines of paired launches are matched first, so that among many equal lines the right ones are
matched.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rewriter.comparison.artifacts.buffer_facts import BufferFacts
from rewriter.core import text_diff
from rewriter.core.text import counted

_WORD = re.compile(r"[A-Za-z_]\w*")
_HANDLE = "_handle"
# The names of files in Inductor's cache: `code_hash` in torch/_inductor/codecache.py.
_HASH = re.compile(r"(?:\b[a-z2-7]{2}/)?\bc[a-z2-7]{51}\b")
_KERNEL_PATH = re.compile(r"(# kernel path:).*")
_HANDLES = re.compile(r"(\[Provenance debug handles\][^\[]*):\d+")


@dataclass(frozen=True)
class Lines:
    """Lines by number: those on one side only, and pairs that differ only in names or line ends."""

    removed: tuple[int, ...]
    added: tuple[int, ...]
    names: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...]


def compare(
    a: Sequence[bytes],
    b: Sequence[bytes],
    keys_a: Sequence[str] | Sequence[bytes],
    keys_b: Sequence[str] | Sequence[bytes],
    anchors: Iterable[tuple[range, range]] = (),
) -> Lines:
    """Match lines by their keys. `anchors` are lines, from 1, that are known to match."""
    matched: list[tuple[int, int]] = []
    from_a = from_b = 0
    for lines_a, lines_b in [*anchors, (range(len(a) + 1, 0), range(len(b) + 1, 0))]:
        to_a, to_b = lines_a.start - 1, lines_b.start - 1
        inside = text_diff.matches(keys_a[from_a:to_a], keys_b[from_b:to_b])
        matched += [(from_a + i, from_b + j) for i, j in inside]
        matched += [(x - 1, y - 1) for x, y in zip(lines_a, lines_b, strict=False)]
        from_a, from_b = lines_a.stop - 1, lines_b.stop - 1
    there_a, there_b = {i for i, _ in matched}, {j for _, j in matched}
    return Lines(
        tuple(i + 1 for i in range(len(a)) if i not in there_a),
        tuple(j + 1 for j in range(len(b)) if j not in there_b),
        tuple((i + 1, j + 1) for i, j in matched if bare(a[i]) != bare(b[j])),
        tuple((i + 1, j + 1) for i, j in matched if a[i] != b[j] and bare(a[i]) == bare(b[j])),
    )


def bare(line: bytes) -> bytes:
    """A line without its end, and without a byte order mark before it."""
    return line.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n")


def describe_ends(a: Sequence[bytes], b: Sequence[bytes], matched: Lines) -> Iterator[str]:
    """Yield a sentence about the lines that differ in what `bare` removes."""
    for i, j in matched.ends[:1]:
        x, y = (str(line[len(line.rstrip(b"\r\n")) :])[1:] for line in (a[i - 1], b[j - 1]))
        how = "one has a byte order mark" if x == y else f"it ends in {x} in A, in {y} in B"
        yield f"{counted(len(matched.ends), 'line')} equal but for the end: in line {i}, {how}"


def line_keys(lines: Sequence[str], buffers: BufferFacts, names: Mapping[str, str]) -> list[str]:
    """The keys by which lines are matched: their text without the compiler's numbers and hashes.

    `names` replaces names of this side by those of the other.
    """

    def renamed(match: re.Match[str]) -> str:
        stem = match[0].removesuffix(_HANDLE)
        return names.get(stem, stem) + match[0][len(stem) :]

    result = []
    for number, line in enumerate(lines, 1):
        key = buffers.expand(line, number)
        key = _WORD.sub(renamed, key) if names else key
        if "/" in key or len(key) > 50:
            key = _HASH.sub("#", _KERNEL_PATH.sub(r"\1", key))
        result.append(_HANDLES.sub(r"\1", key) if "debug handles]" in key else key)
    return result


def find_anchors(
    pairs: Iterable[tuple[range, range]], keys_a: Sequence[str], keys_b: Sequence[str]
) -> Iterator[tuple[range, range]]:
    """The lines of paired launches that have equal keys, in order."""
    last_a = last_b = 0
    for a, b in pairs:
        if a.start > last_a and b.start > last_b and same(a, b, keys_a, keys_b):
            yield a, b
            last_a, last_b = a.stop - 1, b.stop - 1


def same(a: range, b: range, keys_a: Sequence[str], keys_b: Sequence[str]) -> bool:
    """Whether these lines have equal keys."""
    return keys_a[a.start - 1 : a.stop - 1] == keys_b[b.start - 1 : b.stop - 1]
