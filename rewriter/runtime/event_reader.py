"""Reads the values of an event: lets the probes act on them, measures them, reports the event.

Statistics are computed on the device of the values and fetched once per launch: those from before
the launch wait for those from after it, so that probing costs one transfer per launch. The
exception is a probe that needs them in the dump before the launch runs. Values on the CPU need no
transfer, and are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import device
from .dump import CallDirectory
from .event import Event, Label, Pending, Value, fetch_statistics, first_values
from .findings import Findings
from .graphs import Graphs
from .probe_set import Hook, ProbeSet
from .probes import Probe, ProbeRecorder
from .process import say
from .running_call import RunningCall
from .statistics import Record, measure


class EventReader:
    """Reads the events of one wrapper for its `recorder`.

    `silence` ends all probing. `is_dumping`: events are written to a dump. `shows_values`: the
    first elements of tensors are printed.
    """

    def __init__(
        self,
        recorder: ProbeRecorder,
        probes: ProbeSet,
        graphs: Graphs,
        findings: Findings,
        silence: Callable[[], None],
        *,
        is_dumping: bool,
        shows_values: bool,
    ) -> None:
        self._recorder = recorder
        self._probes = probes
        self._graphs = graphs
        self._findings = findings
        self._silence = silence
        self._is_dumping = is_dumping
        self._shows_values = shows_values

    def read(
        self,
        event: Event,
        call: RunningCall,
        labels: tuple[Label, ...],
        contents: tuple[Any, ...],
    ) -> None:
        """Add the values `contents` to an event, let the probes act on them, and measure them."""
        self.take(event, labels, contents)
        for act in self._probes.checks(event):
            self.ask(act, event, call)
        if event.error:
            self._report_fault(event, call)
            return
        readers = self._probes.readers(event)
        if (readers or event.tensors) and device.is_capturing():
            self._capture(event, call, readers)
            return
        for probe in readers:
            self.ask(probe.at, event, call)
        self._measure(event, call)

    def take(self, event: Event, labels: tuple[Label, ...], contents: tuple[Any, ...]) -> None:
        """Add values to an event; one that cannot be read is left out with a warning."""
        for label, content in zip(labels, contents, strict=True):
            try:
                event.values += Value.read(label, content)
            except Exception as error:
                self._recorder.warn(
                    f"{event.about} {label.name}", f"{type(error).__name__}: {error}"
                )

    def _capture(self, event: Event, call: RunningCall, readers: list[Probe]) -> None:
        """Read an event during CUDA graph capture: values can be read only after a replay."""
        for probe in readers:
            if probe.copies:
                name = type(probe).__module__.rpartition(".")[2]
                self._recorder.warn(
                    event.about,
                    f"{name} cannot copy to the host while a CUDA graph is being captured: only "
                    "statistics come from a replay",
                )
            else:
                self.ask(probe.at, event, call)
        self._graphs.add(event, call, measured=self.is_measured(event))

    def is_measured(self, event: Event) -> bool:
        """Whether a probe or the dump needs the statistics of the event's tensors."""
        return self._is_dumping or self._probes.measures(event)

    def _report_fault(self, event: Event, call: RunningCall) -> None:
        """Report that the device failed, and end all probing: nothing can be read any more."""
        if event.launch is None:
            return  # the first launch will find the same error
        self._silence()
        call.note(event, {"error": event.error})
        earlier = " (of something before this launch)" if event.phase == "before" else ""
        say(f"{self._recorder.about(event)}: {event.error}{earlier}\n")

    def _measure(self, event: Event, call: RunningCall) -> None:
        wanted = self.is_measured(event)
        records = [
            measure(value.content) if wanted and value.statistics is None else None
            for value in event.tensors
        ]
        if self._shows_values:
            for value in event.tensors:
                value.head = first_values(value.content)
        devices = _devices(records)
        for where in devices:
            self._graphs.reserve(where)
        for value in event.values:
            value.content = None
        call.pending.append((event, records))
        follows = event.launch is None or (
            event.phase == "before" and "after" in event.launch.labels
        )
        if self._probes.is_prompt(event) or self._findings.stops or not (devices and follows):
            self.flush(call)

    def flush(self, call: RunningCall) -> None:
        """Fetch the statistics that are pending, in one transfer, and report their events.

        During CUDA graph capture, those on a device wait until it is over: a copy to the host would
        end it. A wrapper may read its inputs before it has parts of itself captured.
        """
        is_on_device = any(_devices(records) for _, records in call.pending)
        if not call.pending or (is_on_device and device.is_capturing()):
            return
        pending, call.pending = call.pending, []
        try:
            fetch_statistics(pending)
        except Exception as error:
            # The events are still worth reporting without statistics.
            self._recorder.warn(
                pending[0][0].about, f"{type(error).__name__}: {device.first_line(error)}"
            )
        self.report(pending, call, call.directory)

    def report(
        self, events: list[Pending], call: RunningCall, directory: CallDirectory | None
    ) -> None:
        """Let the probes print measured events, and write these to the dump."""
        for event, _ in events:
            for probe in self._probes.acting(event):
                self.ask(probe.measured, event, call)
            if directory is not None:
                directory.write(event)
            self._findings.end_if_found(call, directory)

    def ask(self, act: Hook, event: Event, call: RunningCall) -> None:
        """Let one probe act. If it fails, warn, so that the other probes still act."""
        try:
            act(event, call, self._recorder)
        except Exception as error:
            self._recorder.warn(event.about, f"{type(error).__name__}: {error}")


def _devices(records: Sequence[Record | None]) -> set[torch.device]:
    """The devices, other than the CPU, that hold records."""
    return {record.values.device for record in records if record} - {torch.device("cpu")}
