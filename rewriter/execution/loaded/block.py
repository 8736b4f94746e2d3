"""A block of `probing`: what it probes, and what was recorded for it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.instrumentation.types import Selection


@dataclass(eq=False)
class Block:
    """The probes of one `probing`, and the directory that they record to.

    `calls` counts the finished calls, by the wrapper's path.
    """

    selection: Selection
    directory: Path
    echo: bool
    calls: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _notes: dict[str, None] = field(default_factory=dict)
    # For the wrappers that were called: how many have a selected launch, the error for one that has
    # none, and for each part of the selection, how many have no launch that it names.
    _matched: int = 0
    _refused: str = ""
    _unmatched: Counter[str] = field(default_factory=Counter)

    def note(self, text: str) -> None:
        """Remember, once, something that the user needs to know."""
        self._notes[text] = None

    def planned(self, unmatched: tuple[str, ...]) -> None:
        """A wrapper got probes; `unmatched` are parts of the selection that match none of its
        launches, while other parts do."""
        self._matched += 1
        self._unmatched.update(unmatched)

    def refused(self, error: RewriterError) -> None:
        """A wrapper has no launch that the selection matches."""
        self._refused = f"{error.message}. {error.hint}"

    def count(self, path: str) -> None:
        """A call of the wrapper at `path` ended."""
        with self._lock:
            self.calls[path] += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user needs to know by now."""
        notes = list(self._notes)
        if self._refused and not self._matched:
            notes.append(self._refused)
        for part, times in self._unmatched.items():
            if times == self._matched:
                notes.append(f"{part} names nothing in the wrappers that were called")
        return tuple(notes)
