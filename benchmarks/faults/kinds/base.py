"""The base classes of kinds of faults: each finds the changes that plant it at a launch."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.faults.source import Edit, Kernel, Source, Target
from rewriter.locate.types import Launch


@dataclass(frozen=True)
class Change:
    """One way to plant a fault."""

    what: str  # in words
    edits: tuple[Edit, ...]
    culprits: tuple[int, ...]  # the launches at fault, by their index in the changed source
    # The buffers that become wrong: a missing launch has no index, so it is found by these.
    buffers: tuple[str, ...] = ()
    # For each launch of the changed source its index in the original; empty if these are equal.
    order: tuple[int, ...] = ()
    # Outputs of the wrapper that are wrong although no launch read or wrote a wrong value.
    outputs: tuple[str, ...] = ()


class Kind(ABC):
    """A kind of fault. A `harmless` kind changes no result, so no launch may be named."""

    name: str
    harmless = False

    @abstractmethod
    def changes(self, target: Target) -> Iterator[Change]:
        """Yield all ways to plant the fault at a launch."""

    def changes_at(self, launch: Launch, source: Source) -> list[Change]:
        """All ways to plant the fault at a launch of a source."""
        return list(self.changes(Target(source, launch)))

    def applies(self, launch: Launch, source: Source) -> bool:
        """Whether the fault can be planted at a launch."""
        return next(self.changes(Target(source, launch)), None) is not None

    def plant(self, launch: Launch, source: Source, seed: int) -> Change:
        """Draw one of the ways by `seed`. Raises `IndexError` if there is none."""
        return random.Random(seed).choice(self.changes_at(launch, source))


Replacement = Callable[[re.Match[str]], "tuple[str, str] | None"]


class KernelKind(Kind):
    """A fault in the source of a kernel: for each language, patterns with their replacements.

    A replacement is a function of the match. It returns the new text and a description of the
    change, or None if it does not apply.
    """

    cpp: tuple[tuple[re.Pattern[str], Replacement], ...] = ()
    triton: tuple[tuple[re.Pattern[str], Replacement], ...] = ()

    def changes(self, target: Target) -> Iterator[Change]:
        kernel = target.kernel
        if kernel is None:
            return
        for edit, what in self.edits(kernel):
            yield Change(f"{kernel.name}: {what}", (edit,), target.sharing)

    def edits(self, kernel: Kernel) -> Iterator[tuple[Edit, str]]:
        for pattern, replacement in self.cpp if kernel.language == "cpp" else self.triton:
            for match in pattern.finditer(kernel.text):
                found = replacement(match)
                if found is not None and found[0] != match[0]:
                    start = kernel.start + match.start()
                    yield Edit(start, start + len(match[0]), found[0], kernel.file), found[1]


def replaced(text: str, match: re.Match[str], group: int = 1) -> str:
    """The matched text with one group replaced by `text`."""
    start = match.start()
    return match[0][: match.start(group) - start] + text + match[0][match.end(group) - start :]


def simply(new: Callable[[re.Match[str]], str | None], group: int = 1) -> Replacement:
    """A replacement of one group by the result of `new`; it does not apply if that is None."""

    def replacement(match: re.Match[str]) -> tuple[str, str] | None:
        text = new(match)
        if text is None:
            return None
        changed = replaced(text, match, group)
        return changed, f"`{_short(match[0])}` is `{_short(changed)}`"

    return replacement


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 100 else words[:97] + "…"


def line_of(source: Source, launch: Launch) -> tuple[int, str]:
    """The offset of the statement of a launch, and its text."""
    start, end = source.statement(launch)
    return start, source.text[start:end]
