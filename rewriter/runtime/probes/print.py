"""Prints the values around launches: dtype, shape, statistics, counts of NaN and infinities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class PrintProbe(Probe):
    summary = "print statistics of every tensor and the value of every scalar"
    of_results = True
    reads_values = True
    idle = True
    measures = True

    def measured(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        # Tools that parse upstream's format expect all values, also unchanged ones.
        values = event.values if recorder.is_upstream else call.fresh(event, event.values)
        recorder.write([recorder.style.value(event, value) for value in values])


PROBE = PrintProbe
