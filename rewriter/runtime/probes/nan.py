"""Counts NaN, infinities, and 16-bit numbers near their limit; prints the tensors that have any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class NanProbe(Probe):
    summary = (
        "count NaN, infinities, and values near the limit of 16-bit types; print tensors with any"
    )
    of_results = True
    reads_values = True
    idle = True
    measures = True

    def measured(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        values = [
            value
            for value in event.tensors
            if value.statistics is not None and not recorder.allows(event, value)
        ]
        # With `print`, its lines have the counts of all values.
        if "print" not in recorder.probes:
            shown = values if recorder.is_upstream else call.fresh(event, values)
            lines = (recorder.style.health(event, value) for value in shown)
            recorder.write([line for line in lines if line])
        for value in values:
            if value.statistics is not None and value.statistics.nan:
                recorder.stop_at(event, value)
                return


PROBE = NanProbe
