"""Completes the memory events that the launch finders of all languages collect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rewriter.locate.types import Launch, MemoryEvent


def numbered(events: Iterable[MemoryEvent], launches: Sequence[Launch]) -> tuple[MemoryEvent, ...]:
    """Put the events of a wrapper in file order, number them, and set which reuses are dead."""
    ordered = sorted(events, key=lambda event: event.insertion_point.start)
    dead = _dead(ordered, launches)
    return tuple(
        # Three times as fast as `replace`.
        MemoryEvent(
            index,
            event.scope,
            event.action,
            event.buffer,
            event.of,
            event.line,
            event.insertion_point,
            index in dead,
            event.is_held,
        )
        for index, event in enumerate(ordered)
    )


def _dead(events: Sequence[MemoryEvent], launches: Sequence[Launch]) -> set[int]:
    """The reuses whose memory is written next without being read, by index."""
    waiting: dict[tuple[str, str], int] = {}
    dead: set[int] = set()
    for place in _by_place(events, launches):
        if isinstance(place, Launch):
            for argument in place.args:
                index = waiting.pop((place.scope, argument.name.partition(".")[0]), None)
                if index is not None and argument.role == "out":
                    dead.add(index)
            continue
        index, event = place
        if event.of:
            # No launch used the memory under its previous name, so that reuse is not dead.
            waiting.pop((event.scope, event.of), None)
        if event.action == "reuse":
            waiting[event.scope, event.buffer] = index
        else:
            waiting.pop((event.scope, event.buffer), None)
    return dead


def _by_place(
    events: Sequence[MemoryEvent], launches: Sequence[Launch]
) -> Iterator[Launch | tuple[int, MemoryEvent]]:
    both = [
        (launch.insertion_point.start, 1, place, launch) for place, launch in enumerate(launches)
    ]
    both += [(event.insertion_point.start, 0, place, event) for place, event in enumerate(events)]  # type: ignore[misc]
    for _, _, place, launch in sorted(both, key=lambda row: row[:3]):
        yield launch if isinstance(launch, Launch) else (place, launch)
