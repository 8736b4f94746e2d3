"""The state of one call of a wrapper while it runs."""

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
    """One call of the wrapper in one thread."""

    number: int  # in this process, counted from 0
    directory: CallDirectory | None = None  # in the dump, if one is written
    is_wanted: bool = True  # whether the user chose to record the call
    started: int = field(default_factory=perf_counter_ns)  # nanoseconds
    # How often each launch ran so far, by phase and index; -1 for the inputs.
    runs: dict[str, dict[int, int]] = field(
        default_factory=lambda: {"inputs": {}, "before": {}, "after": {}}
    )
    pending: list[Pending] = field(default_factory=list)  # statistics are still on their device
    later: list[tuple[Event, Callable[[], None]]] = field(default_factory=list)  # run at the end
    states: dict[object, Any] = field(default_factory=dict)  # of each probe, for this call
    capture: Capture | None = None  # the CUDA graph that the call is captured into
    stdout: Stdout | None = None  # where fast paths write lines; None: they cannot
    start: bytes = b""  # the beginning of each line
    uses_cuda: bool = False  # whether a CUDA graph may be captured during the call
    queued: int = 0  # the call's handle in the `EventQueue`, 0 if it does not use that
    is_prompt: bool = False  # the queue writes each launch before the launch goes on
    collects: bool = False  # the queue collects lines for Python to write
    is_quick: bool = False  # the queue does all that a launch needs
    measure: Callable[[bytes], int] = lambda _: 0  # `EventQueue.launch`
    # The launch that took the slow path in its phase "before", so also in "after"; -2: none.
    slow: int = -2
    slot: int = 0  # the offset in `memory` of this thread's marks; 0: no marks are left
    slot_address: int = 0  # where that is in the memory of this process
    memory: Any = None  # the mapped file of the ring
    words: Any = None  # the same memory as 64-bit integers
    word: int = 0  # the slot still belongs to this call if `words[word]` is `mark`
    mark: int = 0
    marked: dict[int, int] = field(default_factory=dict)  # how often each launch left a mark
    watch: Any = None  # native state of guarded buffers (memory/regions.py); None: not yet made
    # Values to keep alive until they are measured: if the wrapper raises, it frees its own.
    held: list[tuple[Any, ...]] = field(default_factory=list)
    # What was last shown before a launch: the launch and iteration, and `facts` by value name.
    _shown: tuple[tuple[ProbedLaunch | None, int], dict[str, str]] = ((None, 0), {})

    def hold(self, values: tuple[Any, ...], plan: Plan) -> None:
        """Keep the values of a launch alive as long as their measurement waits.

        It waits for the next launch if `plan.together`, for the next memory line if `plan.held`.
        Otherwise it was issued, with all that waited before, whose values are let go.
        """
        if plan.together:
            self.held.append(values)
        elif plan.held:
            self.held[:] = [tuple(values[place] for place in plan.held)]
        elif self.held:
            self.held.clear()

    def enter(self) -> int:
        """Take a slot for marks again, since another thread or call took it; returns its offset."""
        if self.directory is not None:
            self.directory.leave_marks_of(self)
        return self.slot

    def event(self, launch: ProbedLaunch, phase: str) -> Event:
        """Make the next event of a phase of a launch, without values, and count the iteration."""
        runs = self.runs[phase]
        iteration = runs.get(launch.index, 0)
        runs[launch.index] = iteration + 1
        return Event(launch, phase, iteration, self.number)

    def inputs(self) -> Event:
        """Make the event of the call's inputs, without values."""
        return Event(None, "inputs", 0, self.number)

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor in the dump. Returns the file's path relative to the call's directory.

        Returns an empty text if there is no memory to save, or the call has no directory (which
        was reported before).
        """
        if self.directory is None or not has_memory(value.content):
            return ""
        return self.directory.save(event, value)

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Add a separate row with `facts` about an event to the dump, if one is written."""
        if self.directory is not None:
            self.directory.note(event, facts)

    def fresh(self, event: Event, values: Sequence[Value]) -> list[Value]:
        """Those values of an event that are to be printed.

        A value that the launch only reads was printed before it. It is printed again after the
        launch only if it changed: something wrote out of bounds, or the wrapper does not declare
        everything that the launch writes.
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
