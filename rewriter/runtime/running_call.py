"""One call of a wrapper while it runs: where it dumps, and what waits for its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .event import Event, Pending, ProbedLaunch, Value
from .statistics import has_memory

if TYPE_CHECKING:
    from .capture import Capture
    from .dump import CallDirectory
    from .plan import Plan
    from .printer import Stdout


@dataclass(eq=False)
class RunningCall:
    """One call of the wrapper in one thread; `number` counts them from 0, in this process.

    `directory` is where it dumps, if it does. `started` is a reading of `perf_counter_ns`. `runs`
    counts by phase how often each launch came, `pending` are the events whose statistics are
    still on their device, `later` is what waits for the end of the call. `states` is what each
    probe keeps for as long as the call runs. `capture` is the CUDA graph that the call goes into.
    `stdout` is where lines can be written directly, `start` what each begins with, and `uses_cuda`
    whether a CUDA graph may be captured meanwhile. `queued` is the call's number in the
    `EventQueue`, if it uses that, and `measure` its `launch`; `is_prompt` is whether launches wait
    until they are written, `collects` whether Python has to write lines, and `is_quick` whether a
    launch needs nothing else. `slow` is the launch before which values went another way. `slot` is
    where in `memory` marks are left, 0 for nowhere, and `mark` is what stands in `words`, the same
    memory, at `word` as long as they are of this call; `marked` is how often each launch began.
    `watch` is what is kept of its buffers in regions (`memory/regions.py`), None before the first.
    `held` are values that wait to be measured with those of the next launch: a wrapper that fails
    there frees its own.
    """

    number: int
    directory: CallDirectory | None = None
    is_wanted: bool = True
    started: int = field(default_factory=perf_counter_ns)
    runs: dict[str, dict[int, int]] = field(default_factory=lambda: {"before": {}, "after": {}})
    pending: list[Pending] = field(default_factory=list)
    later: list[tuple[Event, Callable[[], None]]] = field(default_factory=list)
    states: dict[object, Any] = field(default_factory=dict)
    capture: Capture | None = None
    stdout: Stdout | None = None
    start: bytes = b""
    uses_cuda: bool = False
    queued: int = 0
    is_prompt: bool = False
    collects: bool = False
    is_quick: bool = False
    measure: Callable[[bytes], int] = lambda _: 0
    slow: int = -1
    slot: int = 0
    memory: Any = None
    words: Any = None
    word: int = 0
    mark: int = 0
    marked: dict[int, int] = field(default_factory=dict)
    watch: Any = None
    held: list[tuple[Any, ...]] = field(default_factory=list)
    # What was last shown before a launch: which one, and the facts of each value, by name.
    _shown: tuple[tuple[ProbedLaunch | None, int], dict[str, str]] = ((None, 0), {})

    def hold(self, values: tuple[Any, ...], plan: Plan) -> None:
        """Values of a launch were handed over to be measured: with those of the next one, by the
        lines about memory that follow, or now, and all that waited."""
        if plan.together:
            self.held.append(values)
        elif plan.held:
            self.held[:] = [tuple(values[place] for place in plan.held)]
        elif self.held:
            self.held.clear()

    def enter(self) -> int:
        """Where marks are left from now on: there are more threads than slots, or this one was in
        another call."""
        if self.directory is not None:
            self.directory.leave_marks_of(self)
        return self.slot

    def event(self, launch: ProbedLaunch, phase: str) -> Event:
        """The next event of this phase of the launch, as yet without values."""
        runs = self.runs[phase]
        iteration = runs.get(launch.index, 0)
        runs[launch.index] = iteration + 1
        return Event(launch, phase, iteration, self.number)

    def inputs(self) -> Event:
        """The event of the call's inputs, as yet without values."""
        return Event(None, "inputs", 0, self.number)

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor in the dump; the file's path inside the directory of this call.

        Empty where there is nothing to save, or no directory could be made: that is a warning of
        its own.
        """
        if self.directory is None or not has_memory(value.content):
            return ""
        return self.directory.save(event, value)

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Add a row of its own about an event to the dump, if one is written."""
        if self.directory is not None:
            self.directory.note(event, facts)

    def fresh(self, event: Event, values: Sequence[Value]) -> list[Value]:
        """Those values of an event that are to be shown.

        What a launch only reads was shown before it, and is shown again after it only where it is
        not what it was: something wrote out of bounds, or the wrapper does not declare all that
        the launch writes.
        """
        which = (event.launch, event.iteration)
        if event.phase == "before":
            self._shown = (which, {value.label.name: value.facts for value in values})
        if event.phase != "after" or self._shown[0] != which:
            return list(values)
        before = self._shown[1]
        return [
            value
            for value in values
            if value.label.role != "in" or before.get(value.label.name) != value.facts
        ]
