"""Waits for the device before and after each launch, so that a fault shows at its launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class SyncProbe(Probe):
    summary = "wait for the device around each launch, so that its faults surface there"
    reads_values = True
    prompt = True

    def check(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        from ..device import first_line, of_values, synchronize

        if recorder.is_capturing():
            if not recorder.mark(event, call):
                recorder.warn(
                    event.about,
                    "sync cannot wait for the device while a CUDA graph is being captured: "
                    "faults in a replay have no launch",
                )
            return
        kind = event.launch.kind if event.launch else "cpp"
        for device in of_values((value.content for value in event.values), kind):
            try:
                synchronize(device)
            except Exception as error:
                event.error = first_line(error)
                return


PROBE = SyncProbe
