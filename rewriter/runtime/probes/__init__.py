"""What a probe is. Each file beside this one holds one, and names its class `PROBE`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from ..event import Event, Value
    from ..expected import ExpectedInput
    from ..running_call import RunningCall
    from ..text import Text, Upstream


class ProbeRecorder(Protocol):
    """What a probe may use of the recorder that it serves.

    What belongs to one call, its directory in the dump above all, is in the `RunningCall`.
    """

    @property
    def probes(self) -> tuple[str, ...]:
        """The names of all probes of the wrapper."""

    @property
    def expected(self) -> tuple[ExpectedInput, ...]:
        """What the wrapper was made for: a row for each input, in order."""

    @property
    def guards(self) -> tuple[str, ...]:
        """Conditions on sizes that have to hold."""

    @property
    def is_upstream(self) -> bool:
        """Whether events are printed as upstream's printer prints them."""

    @property
    def style(self) -> Text | Upstream:
        """How events read as text."""

    def write(self, lines: list[str]) -> None:
        """Write to standard output in one piece, flushed: what follows may crash."""

    def warn(self, about: str, message: str) -> None:
        """Write a warning to standard error, once, about the first launch that it concerns."""

    def about(self, event: Event) -> str:
        """The start of a line about a launch as a whole: `[rewriter 0] #12 KERNEL`."""

    def allows(self, event: Event, value: Value) -> bool:
        """Whether a value may be NaN or infinite there: the user named it in `--allow`."""

    def stop_at(self, event: Event, value: Value) -> None:
        """End the program once the event is written, if the user wants that at a NaN (`--stop`)."""

    def later(self, event: Event, call: RunningCall, act: Callable[[], None]) -> None:
        """Act when the call is over, or so much is waiting that the device is waited for."""

    def runs_on_gpu(self, event: Event) -> bool:
        """Whether CUDA events can time a launch: by its kind, and those of the launches around."""

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured, so that nothing may be waited for."""

    def mark(self, event: Event, call: RunningCall) -> bool:
        """Have each replay of the graph that is captured leave a mark here; false if none can."""


class Probe:
    """What happens around a launch. One object serves one wrapper, in all threads.

    What it keeps for a single call goes into `call.states`, under the probe itself.

    `when` is where the probe acts unless the user says otherwise; one that acts at the "inputs" of
    a call does so whatever launches and phases the user chose, and so does one that acts on
    "memory": where it is allocated ("allocate"), taken over ("reuse") and given up ("release"), and
    behind the launches that were chosen ("launch"), of which `memory` has those that it needs. One
    that `spans` a launch acts on both sides of it. One that is `of_results` shows what launches
    write, after them alone, and the inputs of each call, unless the user wants all arguments.
    `reads_values` asks for the values to be handed over at all, `measures` for their statistics.
    One that is `idle` does nothing at a launch of which the user wants no values. `saves` makes a
    dump directory a must; without it one is written only where `REWRITER_DUMP` says so. `prompt`
    keeps statistics from waiting for those of the other side of the launch. What `copies` values to
    the host in `at` has to be left out where a CUDA graph is captured. What `marks` acts after
    launches, whatever the user chose, and leaves a mark before and after each.
    """

    summary: ClassVar[str]
    when: ClassVar[Literal["before", "after", "both", "inputs", "memory"]] = "both"
    memory: ClassVar[frozenset[str]] = frozenset()
    spans: ClassVar[bool] = False
    of_results: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    idle: ClassVar[bool] = False
    measures: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    prompt: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    marks: ClassVar[bool] = False

    def given(
        self, event: Event, values: Sequence[Any], call: RunningCall, recorder: ProbeRecorder
    ) -> None:
        """Act on the inputs of a call, before the wrapper looks at them; `when` is "inputs"."""

    def check(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Before anything is read: set `event.error` where the device is faulty."""

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act at the launch itself: the values are what they are now, and may change later."""

    def measured(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act on the statistics of an event, which may come as late as after the launch."""

    def start(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act last before the launch runs."""

    def stop(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        """Act first after the launch was issued."""


class Mark(Probe):
    """Stands before launches for a probe that `marks`: a line has to be there, without values. The
    mark itself is left on the way to the probes (`FastPaths`)."""

    summary = "mark that a launch begins"
    when = "before"
