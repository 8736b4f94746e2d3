"""Pairs the kernel sources of two wrappers, and finds those that differ."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rewriter.comparison.artifacts.types import KernelChange
from rewriter.core import text_diff
from rewriter.locate.types import KernelSource

# The comment with the path of the file that Inductor wrote the kernel to.
_PATH = re.compile(r"^[ \t]*(?:#|//) kernel path: .*$", re.MULTILINE)
_CODE = re.compile(r"^@triton\.jit\b", re.MULTILINE)


@dataclass(frozen=True)
class Kernels:
    """The kernels of one wrapper, by the names under which they are launched.

    `normal` are their sources without what is not part of the kernel: its own number, paths.
    """

    sources: Mapping[str, KernelSource]
    normal: Mapping[str, str]


def read(kernels: Iterable[KernelSource]) -> Kernels:
    sources = {kernel.name: kernel for kernel in kernels}
    return Kernels(sources, {name: _normal(kernel) for name, kernel in sources.items()})


def pair(
    a: Kernels, b: Kernels, launched: Iterable[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """The pairs of kernels, and those that only one side has.

    Kernels of paired launches come first, then kernels with equal sources, then those with equal
    names.
    """
    pairs: dict[str, str] = {}
    taken: set[str] = set()

    def take(one: str, other: str) -> None:
        if one in a.sources and other in b.sources and one not in pairs and other not in taken:
            pairs[one] = other
            taken.add(other)

    def untouched(name: str) -> bool:
        return name in a.normal and a.normal[name] == b.normal.get(name)

    launched = list(launched)
    for one, other in launched:
        if a.normal.get(one) == b.normal.get(other):
            take(one, other)
    for one, other in launched:
        # The launch uses another kernel, and both kernels exist unchanged on both sides.
        if one == other or not (untouched(one) or untouched(other)):
            take(one, other)
    free: dict[str, deque[str]] = {}
    for name, text in b.normal.items():
        if name not in taken:
            free.setdefault(text, deque()).append(name)
    for name, text in a.normal.items():
        if name not in pairs and (others := free.get(text)):
            take(name, others.popleft())
    for source in a.sources:
        take(source, source)
    left_a = [name for name in a.sources if name not in pairs]
    left_b = [name for name in b.sources if name not in taken]
    return [(name, pairs[name]) for name in a.sources if name in pairs], left_a, left_b


def describe_change(a: Kernels, b: Kernels, name_a: str | None, name_b: str | None) -> KernelChange:
    """How the source of a kernel differs; a missing source counts as empty."""
    sides = ((a, name_a), (b, name_b))
    text_a, text_b = ("" if name is None else side.normal[name] for side, name in sides)
    diff = text_diff.unified(text_a, text_b, f"a/{name_a or ''}", f"b/{name_b or ''}")
    lines = diff.splitlines()[2:]
    # The functions, without the decorators and imports above them.
    found = ((text, _CODE.search(text)) for text in (text_a, text_b))
    code_a, code_b = (None if match is None else text[match.start() :] for text, match in found)
    same_code = None not in (name_a, name_b, code_a) and code_a == code_b
    apart = all(x.sources[name].end == 0 for x, name in sides if name is not None)
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    part: Literal["code", "metadata"] = "metadata" if same_code else "code"
    return KernelChange(name_a, name_b, part, removed, added, diff, apart)


def _normal(kernel: KernelSource) -> str:
    text = _PATH.sub("", kernel.text.replace("\r\n", "\n"))
    own = kernel.name.rstrip("0123456789")
    own = own.removesuffix("_") if own != kernel.name else own
    return re.sub(rf"\b{re.escape(kernel.name)}\b", own, text)
