"""Completes the memory events that the launch finders of all languages collect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rewriter.locate.types import Launch, MemoryEvent


def numbered(events: Iterable[MemoryEvent], launches: Sequence[Launch]) -> tuple[MemoryEvent, ...]:
    """Put the events of a wrapper in file order, number them, and set which reuses are dead."""
    ordered = sorted(events, key=lambda event: event.insertion_point.start)
    dead = _dead(ordered, launches)
    return tuple(
        replace(event, index=index, is_dead=index in dead) for index, event in enumerate(ordered)
    )


def _dead(events: Sequence[MemoryEvent], launches: Sequence[Launch]) -> set[int]:
    """The reuses whose memory is written next without being read, by index."""
    waiting: dict[tuple[str, str], int] = {}
    dead: set[int] = set()
    index = -1  # of an event
    both: list[MemoryEvent | Launch] = [*events, *launches]
    for place in sorted(both, key=lambda place: place.insertion_point.start):
        if isinstance(place, Launch):
            for argument in place.args:
                reuse = waiting.pop((place.scope, argument.name.partition(".")[0]), None)
                if reuse is not None and argument.role == "out":
                    dead.add(reuse)
            continue
        index += 1
        if place.of:
            # No launch used the memory under its previous name, so that reuse is not dead.
            waiting.pop((place.scope, place.of), None)
        waiting.pop((place.scope, place.buffer), None)
        if place.action == "reuse":
            waiting[place.scope, place.buffer] = index
    return dead
