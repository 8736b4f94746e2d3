"""The probes of one wrapper, by the phase at which they act."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .event import Event
from .probes import Mark, Probe, ProbeRecorder
from .probes.names import NamesProbe
from .running_call import RunningCall

Hook = Callable[[Event, RunningCall, ProbeRecorder], None]


class ProbeSet:
    """The probes that a wrapper's table names.

    `starts` and `stops` are the methods of these names that probes override, in calling order.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.names: tuple[str, ...] = tuple(options["probes"])
        self._acting: dict[str, list[Probe]] = {
            "given": [],
            "inputs": [],
            "before": [],
            "after": [],
        }
        # A file that was instrumented by an earlier version has all arguments.
        written = options.get("args") == "written"
        for name in self.names:
            probe: Probe = import_module(f".probes.{name}", __package__).PROBE()
            if probe.when == "memory":
                continue  # `Memory` (memory/watch.py) does its work
            is_fixed = probe.spans or probe.marks or probe.when == "inputs"
            own = "after" if written and probe.of_results else probe.when
            when = probe.when if is_fixed else options["when"] or own
            phases = ("before", "after") if when == "both" else (when,)
            for phase in phases:
                self._acting[phase].append(probe)
            # "given" stands for the inputs of a call, which are read before all launches.
            if "before" in phases or (written and probe.of_results) or probe.marks:
                self._acting["given"].append(probe)
            if probe.marks:
                self._acting["before"].append(Mark())
        # Looked up once: there are many launches, and most probes override none of these.
        self.starts = _own(self._acting["before"], "start")
        self.stops = _own(self._acting["after"], "stop")[::-1]
        self._checks = {phase: _own(probes, "check") for phase, probes in self._acting.items()}

    @property
    def of_inputs(self) -> list[Probe]:
        """The probes that check the inputs of each call, whatever launches the user chose."""
        return self._acting["inputs"]

    @property
    def saves(self) -> bool:
        """Whether a probe needs a dump directory."""
        return any(probe.saves for probes in self._acting.values() for probe in probes)

    def has_any(self, phase: str) -> bool:
        """Whether a probe acts at this phase of a launch."""
        return bool(self._acting[phase])

    def has_names_alone(self, phase: str) -> bool:
        """Whether `names` is the only probe at this phase of a launch, apart from marks."""
        acting = [type(x) for x in self._acting[phase] if type(x) is not Mark]
        return acting == [NamesProbe] and not (self.starts if phase == "before" else self.stops)

    @property
    def marks(self) -> bool:
        """Whether launches leave marks, for the probe `record`."""
        return any(type(probe) is Mark for probe in self._acting["before"])

    def has_marks_alone(self, phase: str) -> bool:
        """Whether leaving a mark is all that is done at this phase of a launch."""
        return bool(self._acting[phase]) and all(type(x) is Mark for x in self._acting[phase])

    def readers_at(self, phase: str) -> list[str]:
        """The names of the probes that read values at a phase of a launch, or of "inputs"."""
        acting = self._acting["given" if phase == "inputs" else phase]
        return [_name(probe) for probe in acting if probe.reads_values]

    def can_be_queued(self) -> bool:
        """Whether the event queue can do the work of all probes that read values.

        It can for `print`, `hash`, `nan` and `record`, if no other probe acts at the same phase.
        """
        phases = ("inputs", "before", "after")
        readers = {name for phase in phases for name in self.readers_at(phase)}
        return (
            readers <= {"print", "hash", "nan", "record"}
            and not any(
                {_name(probe) for probe in self._acting[phase]} & {"names"}
                for phase in ("before", "after")
                if self.readers_at(phase)
            )
            and not (self.starts or self.stops)
        )

    def acting(self, event: Event) -> list[Probe]:
        """The probes that act at an event."""
        return self._acting[_phase(event)]

    def readers(self, event: Event) -> list[Probe]:
        """Those of the acting probes that read values."""
        return [probe for probe in self.acting(event) if probe.reads_values]

    def checks(self, event: Event) -> list[Hook]:
        """The methods `check` of the acting probes that override it."""
        return self._checks[_phase(event)]

    def measures(self, event: Event) -> bool:
        """Whether an acting probe needs statistics."""
        return any(probe.measures for probe in self.acting(event))

    def is_prompt(self, event: Event) -> bool:
        """Whether an acting probe needs the event in the dump before the launch runs."""
        return any(probe.prompt for probe in self.acting(event))


def _phase(event: Event) -> str:
    return "given" if event.launch is None else event.phase


def _name(probe: Probe) -> str:
    return type(probe).__module__.rpartition(".")[2]


def _own(probes: list[Probe], method: str) -> list[Hook]:
    """The method `method` of those probes whose class overrides it."""
    inherited = getattr(Probe, method)
    return [getattr(x, method) for x in probes if getattr(type(x), method) is not inherited]
