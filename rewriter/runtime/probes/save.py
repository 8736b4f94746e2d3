"""Saves every tensor that a launch reads and writes, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Probe

if TYPE_CHECKING:
    from ..event import Event
    from ..recorder import Recorder


class Save(Probe):
    summary = "save every tensor to the dump, loadable by torch.load(weights_only=True)"
    reads_values = True
    idle = True
    saves = True
    copies = True

    def at(self, event: Event, recorder: Recorder) -> None:
        for value in event.tensors:
            try:
                value.file = recorder.save(event, value)
            except Exception as error:
                about = f"{event.about} {value.label.name}"
                recorder.warn(about, f"cannot be saved: {type(error).__name__}: {error}")


PROBE = Save
