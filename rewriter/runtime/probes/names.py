"""Prints the name of each launch, flushed, before it runs: the last one printed is the culprit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


class NamesProbe(Probe):
    summary = "print the kernel's name before each launch, flushed"
    when = "before"

    def at(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        recorder.write([recorder.style.name(event)])
        if recorder.is_capturing():
            recorder.warn(
                event.about,
                "names inside of a CUDA graph are printed when it is captured: "
                "its replays run no host code",
            )


PROBE = NamesProbe
