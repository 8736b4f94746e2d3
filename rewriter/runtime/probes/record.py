"""Records the last launches in a ring that outlives the process: their values, and marks.

It prints nothing. Its rows are those of `hash`, and `flight_dump.py` writes them into the ring;
`FastPaths` leaves the marks, which say how far each thread got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder
from .hash import fingerprint

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class RecordProbe(Probe):
    summary = (
        "keep the last launches, with statistics and fingerprints, beyond the end of the program"
    )
    when = "after"
    of_results = True
    reads_values = True
    measures = True
    saves = True
    copies = True
    marks = True

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        fingerprint(event, recorder)

    def measured(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        from ..flight_dump import RecordedCall

        if isinstance(call.directory, RecordedCall):
            call.directory.see(event, lambda value: recorder.allows(event, value))


PROBE = RecordProbe
