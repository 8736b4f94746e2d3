"""What a probe is. Each file beside this one holds one, and names its class `PROBE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from ..event import Event
    from ..recorder import Recorder


class Probe:
    """What happens around a launch. One object serves one wrapper.

    `when` is where the probe acts unless the user says otherwise; one that acts at the "inputs" of
    a call does so whatever launches and phases the user chose; one that `spans` a launch acts on
    both sides of it. `reads_values` asks for the values to be handed over at all, `measures` for
    their statistics. One that is `idle` does nothing at a launch of which the user wants no values.
    `saves` makes a dump directory a must; without it one is written only where `REWRITER_DUMP` says
    so. `prompt` keeps statistics from waiting for those of the other side of the launch. What
    `copies` values to the host in `at` has to be left out where a CUDA graph is captured.
    """

    summary: ClassVar[str]
    when: ClassVar[Literal["before", "after", "both", "inputs"]] = "both"
    spans: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    idle: ClassVar[bool] = False
    measures: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    prompt: ClassVar[bool] = False
    copies: ClassVar[bool] = False

    def given(self, event: Event, values: Sequence[Any], recorder: Recorder) -> None:
        """Act on the inputs of a call, before the wrapper looks at them; `when` is "inputs"."""

    def check(self, event: Event, recorder: Recorder) -> None:
        """Before anything is read: set `event.error` where the device is found to be faulty."""

    def at(self, event: Event, recorder: Recorder) -> None:
        """Act at the launch itself: the values are what they are now, and may change later."""

    def measured(self, event: Event, recorder: Recorder) -> None:
        """Act on the statistics of an event, which may come as late as after the launch."""

    def start(self, event: Event, recorder: Recorder) -> None:
        """Act last before the launch runs."""

    def stop(self, event: Event, recorder: Recorder) -> None:
        """Act first after the launch was issued."""
