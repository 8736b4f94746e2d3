"""Saves the tensors around launches, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class SaveProbe(Probe):
    summary = "save every tensor to the dump, loadable by torch.load(weights_only=True)"
    of_results = True
    reads_values = True
    idle = True
    saves = True
    copies = True

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        from ..event import measure_now  # imports torch, which the command line must not

        # Measure first: it waits for its stream, and would wait for the copies as well.
        try:
            measure_now(event)
        except Exception as error:
            recorder.warn(event.about, f"{type(error).__name__}: {error}")
        for value in event.tensors:
            try:
                value.file = call.save(event, value)
            except Exception as error:
                about = f"{event.about} {value.label.name}"
                recorder.warn(about, f"cannot be saved: {type(error).__name__}: {error}")


PROBE = SaveProbe
