"""The caches of one run of a program, which are locked, probed and restored together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rewriter.cache import mutate
from rewriter.cache.journal import Journal
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.session import Tell, require_plain, writing
from rewriter.cache.slots import Cache, Slot, rescan, scan
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.types import Selection

# How long a command that has results of earlier runs waits for another one, and how often it looks,
# in seconds.
PATIENT, _LOOKS = 300.0, 0.2


class HeldCaches:
    """The caches that a run has locked; the first one is that of the request.

    The journal in each says which of its wrappers have probes, and the first one also which other
    caches have such wrappers: a command that finds it after a kill restores them all.
    """

    def __init__(
        self,
        stack: ExitStack,
        command: str,
        tell: Tell,
        go_on: Callable[[], bool],
        patience: float = 0.0,
    ):
        self._stack = stack
        self._command = command
        self._tell = tell
        self._go_on = go_on
        self._patience = patience  # seconds to wait for another command
        self._journals: dict[Path, Journal] = {}
        self._slots: tuple[Slot, ...] = ()

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(self._journals)

    def hold(self, directory: Path) -> Cache:
        """Lock another cache, and write into it that a run is in progress. Returns its content.

        Raises `RewriterError` if another command holds it, or wrappers in it have probes.
        """
        cache = self._enter(directory)
        require_plain(cache)
        self._journals[directory] = Journal(directory, self._command)
        self._announce()
        return cache

    def _enter(self, directory: Path) -> Cache:
        until = time.monotonic() + self._patience
        has_said = False
        while True:
            try:
                return self._stack.enter_context(writing(directory, self._tell))
            except RewriterError as error:
                if error.slug != "cache-busy" or time.monotonic() >= until:
                    raise
                if not has_said:
                    limit = f"{self._patience:g} s at most"
                    self._tell(f"{error.message}: waiting for it, {limit}")
                has_said = True
            if not self._go_on():
                raise KeyboardInterrupt
            time.sleep(_LOOKS)

    def scan(self) -> Cache:
        """The content of all caches as one, with the newest wrapper first."""
        caches = [scan(directory) for directory in self._journals]
        first, others = caches[0], caches[1:]
        slots = [slot for cache in caches for slot in cache.slots]
        return replace(
            first,
            slots=tuple(sorted(slots, key=lambda slot: (-slot.modified, slot.name))),
            kernels=first.kernels + sum(cache.kernels for cache in others),
        )

    def place(
        self, slots: Iterable[Slot], selection: Selection, *, overwrite: bool
    ) -> tuple[tuple[Placed, ...], tuple[Refused, ...]]:
        """Put probes into wrappers."""
        self._slots = tuple(slots)
        self._announce()
        return mutate.instrument(self._slots, selection, overwrite=overwrite, go_on=self._go_on)

    def restore(self) -> tuple[Cleared, ...]:
        """Restore the originals of wrappers that still exist: the program may have removed some."""
        cleared = []
        for directory in self._journals:
            before = (slot for slot in self._slots if slot.directory == directory)
            now = [slot for one in before if (slot := rescan(one)) is not None]
            cleared.append(mutate.clear_up(directory, mutate.restore(now)))
        self._slots = ()
        return tuple(cleared)

    def close(self) -> tuple[Cleared, ...]:
        """Restore what is not restored yet, and end."""
        cleared = self.restore() if self._slots else ()
        # The first one last, since it names the others.
        for journal in reversed(self._journals.values()):
            journal.remove()
        return cleared

    def _announce(self) -> None:
        """Write the journals, before the first wrapper gets probes."""
        others = [str(directory) for directory in self.directories[1:]]
        for number, (directory, journal) in enumerate(self._journals.items()):
            names = (slot.name for slot in self._slots if slot.directory == directory)
            journal.write(names, others=() if number else others)
