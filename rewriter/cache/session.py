"""Opens a cache for a command: alone in it, and after what an interrupted run left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.cache import journal, mutate
from rewriter.cache.journal import Journal
from rewriter.cache.lock import locked
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.slots import Cache, Slot, rescan, scan
from rewriter.core.text import counted
from rewriter.instrumentation.types import Selection

Tell = Callable[[str], None]


@contextmanager
def writing(directory: Path, tell: Tell) -> Iterator[Cache]:
    """The cache, for a command that changes it. Raises `RewriterError` if another one does."""
    with locked(directory):
        yield _recovered(directory, tell)


def reading(directory: Path, tell: Tell) -> Cache:
    """The cache as it is. What an interrupted run left is restored for this, too."""
    if journal.interrupted(directory) is not None:
        with locked(directory):
            return _recovered(directory, tell)
    return scan(directory)


def _recovered(directory: Path, tell: Tell) -> Cache:
    died = journal.interrupted(directory)
    cache = scan(directory)
    if died is None:
        return cache
    cleared = mutate.recover(cache, died)
    tell(
        f"restored {counted(len(cleared.restored), 'wrapper')} that an interrupted `cache run` left"
    )
    for name in cleared.left:
        tell(f"warning: {name} was edited meanwhile, and was left as it is")
    return scan(directory)


class Session:
    """Probes in a cache for as long as a program runs."""

    def __init__(self, directory: Path, command: str, go_on: Callable[[], bool]) -> None:
        self._directory = directory
        self._journal = Journal(directory, command)
        self._go_on = go_on
        self._slots: tuple[Slot, ...] = ()

    def announce(self) -> None:
        """Say that a run is in progress."""
        self._journal.write(())

    def place(
        self, slots: Iterable[Slot], selection: Selection, *, overwrite: bool
    ) -> tuple[tuple[Placed, ...], tuple[Refused, ...]]:
        """Put probes into wrappers."""
        self._slots = tuple(slots)
        self._journal.write(slot.name for slot in self._slots)
        return mutate.instrument(self._slots, selection, overwrite=overwrite, go_on=self._go_on)

    def restore(self) -> Cleared:
        """Give the originals back, as far as there are any: the program may have removed some."""
        now = [slot for before in self._slots if (slot := rescan(before)) is not None]
        cleared = mutate.clear_up(self._directory, mutate.restore(now))
        self._slots = ()
        return cleared

    def close(self) -> Cleared | None:
        """Restore what is not yet, and end."""
        cleared = self.restore() if self._slots else None
        self._journal.remove()
        return cleared
