"""A block of `probing`: what it asks for, and what became of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.instrumentation.types import Selection


@dataclass(eq=False)
class Block:
    """The probes of one `probing`, and where they record to.

    `calls` counts the calls that ended, by the wrapper's path; `latest` is when the last one did.
    """

    selection: Selection
    directory: Path
    echo: bool
    calls: Counter[str] = field(default_factory=Counter)
    latest: float = field(default_factory=time.monotonic)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _notes: dict[str, None] = field(default_factory=dict)
    # Of wrappers that were called: how many have a launch that was asked for, the error of one that
    # has none, and how many have none that a part of the selection names.
    _matched: int = 0
    _refused: str = ""
    _unmatched: Counter[str] = field(default_factory=Counter)

    def note(self, text: str) -> None:
        """Remember something that its user has to know, once."""
        self._notes[text] = None

    def planned(self, unmatched: tuple[str, ...]) -> None:
        """A wrapper has probes now; `unmatched` are parts of the selection that name none of its
        launches, while others do."""
        self._matched += 1
        self._unmatched.update(unmatched)

    def refused(self, error: RewriterError) -> None:
        """A wrapper has no launch that was asked for."""
        self._refused = f"{error.message}. {error.hint}"

    def count(self, path: str) -> None:
        """A call of the wrapper at `path` ended."""
        with self.changed:
            self.calls[path] += 1
            self.latest = time.monotonic()
            self.changed.notify_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """What its user has to know, by now."""
        notes = list(self._notes)
        if self._refused and not self._matched:
            notes.append(self._refused)
        for part, times in self._unmatched.items():
            if times == self._matched:
                notes.append(f"{part} names nothing in the wrappers that were called")
        return tuple(notes)
