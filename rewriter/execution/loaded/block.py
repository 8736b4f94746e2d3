"""A block of `probing`: what it probes, and what was recorded for it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.instrumentation.types import Selection


@dataclass(eq=False)
class Block:
    """The probes of one `probing`, and the directory that they record to.

    `calls` counts the finished calls, by the wrapper's path. `planned` has, for each wrapper that
    was called, the parts of the selection that match none of its launches, or why no part does.
    """

    selection: Selection
    directory: Path
    echo: bool
    calls: Counter[str] = field(default_factory=Counter)
    planned: list[tuple[str, ...] | RewriterError] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Remember, once, something that the user needs to know."""
        self._notes[text] = None

    def count(self, path: str) -> None:
        """A call of the wrapper at `path` ended."""
        with self._lock:
            self.calls[path] += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user needs to know by now."""
        notes = list(self._notes)
        planned = list(self.planned)
        unmatched = [parts for parts in planned if not isinstance(parts, RewriterError)]
        errors = [error for error in planned if isinstance(error, RewriterError)]
        if errors and not unmatched:
            notes.append(f"{errors[-1].message}. {errors[-1].hint}")
        for part, times in Counter(chain.from_iterable(unmatched)).items():
            if times == len(unmatched):
                notes.append(f"{part} names nothing in the wrappers that were called")
        return tuple(notes)
