"""Whether launches on different streams wait for each other, judging by the text of a wrapper.

Launches on one stream run in order. A launch on another stream comes after them only if it waits
for an event that was recorded after them. As in race detectors for threads, each stream has a clock
for each stream that it waited for. Functional collectives also run beside their stream, until
`wait_tensor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rewriter.locate.types import Argument, Launch, Located, StreamAction

_FUNCTIONAL = "c10d_functional"  # and `_c10d_functional`
_WAIT = "wait_tensor"


@dataclass(frozen=True)
class Race:
    """`launch` and `other` use the memory of `argument`, at least one of them writes it, and
    neither waits for the other."""

    launch: Launch
    argument: Argument
    other: Launch
    writes: bool  # whether `launch` writes
    written: bool  # whether `other` wrote

    @property
    def label(self) -> str:
        return f"launch #{self.launch.index} {self.launch.kernel} (line {self.launch.line})"

    @property
    def sentence(self) -> str:
        """The rest of a sentence that begins with `launch`."""
        name, other = self.argument.name, self.other
        label = f"launch #{other.index} {other.kernel} (line {other.line})"
        if is_collective(other):
            does = "writes" if self.written else "reads"
            verb = "writes" if self.writes else "reads"
            return f"{verb} {name}, which {label} still {does}: no wait_tensor stands between"
        mine, its = _stream(self.launch), _stream(other)
        if not self.writes:
            return f"reads {name} on {mine}, which {label} writes on {its}: no event between"
        does = "writes" if self.written else "reads"
        return f"writes {name} on {mine}, which {label} {does} on {its}: no event between"


def find_races(located: Located, launches: Sequence[Launch] = ()) -> tuple[Race, ...]:
    """The races of a wrapper, in file order; one for each pair of launches and buffer.

    `launches` are those of `located`, perhaps with other line numbers, which the races then have.
    """
    launches = launches or located.launches
    steps: list[tuple[int, StreamAction | int]] = [(a.line, a) for a in located.stream_actions]
    if not steps and not any(map(is_collective, launches)):
        return ()
    steps += [(launch.line, launch.index) for launch in located.launches]
    races: list[Race] = []
    scope, inside = _Scope(), False
    for _, step in sorted(steps, key=lambda x: x[0]):
        if isinstance(step, StreamAction):
            if step.kind in ("begin", "end"):
                scope, inside = _Scope(), step.kind == "begin"
            else:
                scope.act(step)
            continue
        launch = launches[step]
        if not inside and launch.scope != scope.name:
            scope = _Scope(launch.scope)
        races += scope.launch(launch)
    return tuple(races)


class _Use(NamedTuple):
    launch: Launch
    stream: str
    at: int  # on the clock of its stream


@dataclass
class _Scope:
    """The state of the walk through a scope, or through a body with several scopes."""

    name: str = ""
    clocks: dict[str, dict[str, int]] = field(default_factory=dict)  # by stream
    events: dict[str, dict[str, int]] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    writers: dict[str, _Use] = field(default_factory=dict)  # by buffer
    readers: dict[str, list[_Use]] = field(default_factory=dict)
    pending: dict[str, list[str]] = field(default_factory=dict)  # collectives, by buffer

    def act(self, action: StreamAction) -> None:
        clock = self._clock(action.stream)
        if action.kind == "record":
            self.events[action.event] = dict(clock)
        elif action.kind == "wait":
            _join(clock, self.events.get(action.event, {}))
        elif action.kind == "synchronize":
            known = self.events.get(action.event, {}) if action.event else None
            for other in [known] if known is not None else list(self.clocks.values()):
                _join(self.host, other)

    def launch(self, launch: Launch) -> list[Race]:
        clock = self._clock(launch.stream)
        _join(clock, self.host)
        tensors = launch.tensors
        if is_collective(launch):
            if _WAIT in launch.kernel:
                for buffer in {tensor.buffer for tensor in tensors}:
                    for stream in self.pending.pop(buffer, ()):
                        _join(clock, self._clock(stream))
                return []
            stream = f"collective {launch.index}"
            self.clocks[stream] = clock = dict(clock)
            for tensor in tensors:
                self.pending.setdefault(tensor.buffer, []).append(stream)
        else:
            stream = launch.stream
        clock[stream] = clock.get(stream, 0) + 1
        use = _Use(launch, stream, clock[stream])
        found = [race for tensor in tensors for race in self._conflicts(use, tensor, clock)]
        for tensor in tensors:
            self._note(use, tensor)
        return list({(race.other.index, race.argument.buffer): race for race in found}.values())

    def _conflicts(self, use: _Use, argument: Argument, clock: dict[str, int]) -> Iterator[Race]:
        buffer, writes = argument.buffer, argument.role != "in"
        writer = self.writers.get(buffer)
        if writer is not None and clock.get(writer.stream, 0) < writer.at:
            yield Race(use.launch, argument, writer.launch, argument.role == "out", True)
        elif writes:
            for reader in self.readers.get(buffer, ()):
                if reader.launch is not use.launch and clock.get(reader.stream, 0) < reader.at:
                    yield Race(use.launch, argument, reader.launch, True, False)

    def _note(self, use: _Use, argument: Argument) -> None:
        if argument.role == "in":
            self.readers.setdefault(argument.buffer, []).append(use)
        else:
            self.writers[argument.buffer] = use
            self.readers.pop(argument.buffer, None)

    def _clock(self, stream: str) -> dict[str, int]:
        return self.clocks.setdefault(stream, {})


def _join(clock: dict[str, int], other: dict[str, int]) -> None:
    for stream, at in other.items():
        clock[stream] = max(at, clock.get(stream, 0))


def is_collective(launch: Launch) -> bool:
    return launch.kind == "collective" and _FUNCTIONAL in launch.kernel


def _stream(launch: Launch) -> str:
    return launch.stream or "the stream of the call"
