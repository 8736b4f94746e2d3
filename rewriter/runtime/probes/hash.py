"""Records a fingerprint of each tensor's elements, to compare runs without saving tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class HashProbe(Probe):
    summary = "print and record a fingerprint of every tensor's elements"
    of_results = True
    reads_values = True
    idle = True
    copies = True

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        fingerprint(event, recorder)
        # With `print`, its lines end with the fingerprints.
        if "print" not in recorder.probes:
            values = event.tensors if recorder.is_upstream else call.fresh(event, event.tensors)
            recorder.write([recorder.style.digest(event, value) for value in values])


def fingerprint(event: Event, recorder: ProbeRecorder) -> None:
    """Compute fingerprints and statistics of an event's tensors, and wait for the result."""
    from ..engine import measure

    for value in event.tensors:
        if value.fingerprint:
            continue
        try:
            (measurement,) = measure([value.content])
            value.fingerprint = measurement.fingerprint
            value.statistics = measurement.statistics  # from the same pass over the tensor
        except Exception as error:
            about = f"{event.about} {value.label.name}"
            recorder.warn(about, f"cannot be hashed: {type(error).__name__}: {error}")


PROBE = HashProbe
