"""The base class of probes. Each other file of this folder has one probe, its class as `PROBE`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from ..event import Event, Value
    from ..expected import ExpectedInput
    from ..running_call import RunningCall
    from ..text import Text, Upstream


class ProbeRecorder(Protocol):
    """The part of the recorder that probes may use.

    State of a single call, such as its directory in the dump, is in the `RunningCall`.
    """

    @property
    def probes(self) -> tuple[str, ...]:
        """The names of all probes of the wrapper."""

    @property
    def expected(self) -> tuple[ExpectedInput, ...]:
        """The inputs that the wrapper was compiled for, in order."""

    @property
    def guards(self) -> tuple[str, ...]:
        """The guards: conditions on sizes that have to hold."""

    @property
    def is_upstream(self) -> bool:
        """Whether events are printed in the format of upstream's printer."""

    @property
    def style(self) -> Text | Upstream:
        """Formats events as text."""

    def write(self, lines: list[str]) -> None:
        """Write lines to standard output in one piece and flush: the next launch may crash."""

    def warn(self, about: str, message: str) -> None:
        """Write a warning to standard error, unless the same message was written before."""

    def about(self, event: Event) -> str:
        """The beginning of a line about a whole launch: `[rewriter 0] #12 KERNEL`."""

    def allows(self, event: Event, value: Value) -> bool:
        """Whether `--allow` names the value, so that it may be NaN or infinite at this event."""

    def stop_at(self, event: Event, value: Value) -> None:
        """With `--stop`: end the program at this NaN, once the event is written."""

    def later(self, event: Event, call: RunningCall, act: Callable[[], None]) -> None:
        """Run `act`, which waits for the device, at the end of the call, or when too many wait."""

    def runs_on_gpu(self, event: Event) -> bool:
        """Whether to time a launch by CUDA events, by the kinds of the wrapper's launches."""

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured: then nothing may synchronise."""

    def mark(self, event: Event, call: RunningCall) -> bool:
        """Capture a mark, which each replay of the graph leaves at this event; false on failure."""


class Probe:
    """A probe: what to do around launches. One object serves one wrapper, in all threads.

    State of a single call goes into `call.states`, with the probe itself as key.
    """

    summary: ClassVar[str]
    # Where the probe acts, unless the user chooses: around launches, at the inputs of each call, or
    # on memory. The last two do not depend on the launches and phases that the user chose.
    when: ClassVar[Literal["before", "after", "both", "inputs", "memory"]] = "both"
    # For "memory", the points that it needs: "allocate", "reuse", "release", or "launch" (after
    # each chosen launch).
    memory: ClassVar[frozenset[str]] = frozenset()
    spans: ClassVar[bool] = False  # always acts both before and after a launch
    # Acts only after launches, on what they write, and on the inputs of each call, unless the user
    # wants all arguments.
    of_results: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False  # needs the values
    idle: ClassVar[bool] = False  # does nothing at a launch whose values the user does not want
    measures: ClassVar[bool] = False  # needs the statistics of the values
    saves: ClassVar[bool] = False  # needs a dump directory, also if `REWRITER_DUMP` is not set
    prompt: ClassVar[bool] = False  # needs statistics from before a launch before it runs
    copies: ClassVar[bool] = False  # `at` copies to the host: skipped during CUDA graph capture
    marks: ClassVar[bool] = False  # leaves marks before and after each launch; reads after it

    def given(
        self, event: Event, values: Sequence[Any], call: RunningCall, recorder: ProbeRecorder
    ) -> None:
        """Act on the inputs of a call before the wrapper checks them, if `when` is "inputs"."""

    def check(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Check the device before anything is read: set `event.error` if it failed."""

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act while the values are as they are at the event; they may change afterwards."""

    def measured(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act once the statistics of the event are known, perhaps only after the launch."""

    def start(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act immediately before the launch, after everything else."""

    def stop(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act immediately after the launch was issued, before everything else."""


class Mark(Probe):
    """Has a wrapper call `before` at each launch, without values, for a probe that `marks`.

    `FastPaths` leaves the mark itself.
    """

    summary = "mark that a launch begins"
    when = "before"
