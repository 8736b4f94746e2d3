"""What a kind of fault is: a function from a launch to the changes that plant it there."""

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
    """One way to plant a fault.

    `culprits` are the launches that are wrong then, by their index in the changed source, `buffers`
    what they leave wrong where no launch is (one that is missing has no index). `order` maps
    launches of the changed source to those of the original where the two differ. `outputs` are
    outputs of the wrapper that are wrong although no launch wrote or read another value.
    """

    what: str
    edits: tuple[Edit, ...]
    culprits: tuple[int, ...]
    buffers: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ()


class Kind(ABC):
    """A kind of fault. `harmless` ones change nothing: nothing may be named."""

    name: str
    harmless = False

    @abstractmethod
    def changes(self, target: Target) -> Iterator[Change]:
        """All ways to plant it at this launch."""

    def changes_at(self, launch: Launch, source: Source) -> list[Change]:
        """All ways to plant it at a launch of a source."""
        return list(self.changes(Target(source, launch)))

    def applies(self, launch: Launch, source: Source) -> bool:
        """Whether it can be planted at this launch."""
        return next(self.changes(Target(source, launch)), None) is not None

    def plant(self, launch: Launch, source: Source, seed: int) -> Change:
        """One of the ways, drawn by `seed`. Raises `IndexError` where it does not apply."""
        return random.Random(seed).choice(self.changes_at(launch, source))


Replacement = Callable[[re.Match[str]], "tuple[str, str] | None"]


class KernelKind(Kind):
    """A fault in the source of a kernel: patterns by language, each with what it is replaced by.

    A replacement gives the new text and what was changed, or nothing where it does not apply.
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
    """What was matched with `text` in the place of a group."""
    start = match.start()
    return match[0][: match.start(group) - start] + text + match[0][match.end(group) - start :]


def simply(new: Callable[[re.Match[str]], str | None], group: int = 1) -> Replacement:
    """Replace one group by what `new` gives, where it gives something."""

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
    """Where the statement of a launch begins, and its text."""
    start, end = source.statement(launch)
    return start, source.text[start:end]
