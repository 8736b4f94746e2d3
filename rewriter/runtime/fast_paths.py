"""The fast paths that most launches take: prepared lines of names, and queued measurements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any

from . import native_calls
from .direct_names import announce
from .event import Label, ProbedLaunch
from .event_queue import COLLECTS, EventQueue, drain_queue, start_queue
from .findings import Findings
from .flight_dump import RecordedCall
from .flight_marks import leave_marks
from .plans import INPUTS, Plans
from .printer import Printer
from .probe_set import ProbeSet
from .running_call import RunningCall
from .text import Text

Act = Callable[..., None]


class FastPaths:
    """Makes the functions to call at the launches of one wrapper.

    `calls` maps threads to the calls that run in them. `exchange(phase, act)` makes the recorder
    use another function for a phase. `joins_memory`: memory lines follow each launch, and keep
    released memory from being reused.

    The parameter `otherwise` of the methods is the slow path of all probes, for what a fast path
    cannot do.
    """

    def __init__(
        self,
        probes: ProbeSet,
        printer: Printer,
        launches: Mapping[int, ProbedLaunch],
        inputs: tuple[Label, ...],
        calls: Mapping[int, RunningCall],
        findings: Findings,
        exchange: Callable[[str, Act], None],
        *,
        joins_memory: bool,
    ) -> None:
        self._probes = probes
        self._printer = printer
        self._launches = launches
        self._inputs = inputs
        self._calls = calls
        self._findings = findings
        self._exchange = exchange
        # By phase: makes the native version of a fast path. Used up when the first call starts.
        self._quicker: dict[str, Callable[[ModuleType], Act]] = {}
        self._queue: EventQueue | None = None
        style = printer.style
        self._plans: dict[str, Plans] = {}
        if isinstance(style, Text) and not style.has_values and probes.can_be_queued():
            held = {label.name for label in inputs} if joins_memory else None
            names = {phase: probes.readers_at(phase) for phase in ("inputs", "before", "after")}
            self._plans = {
                x: Plans(x, names[x], style, findings, held=held) for x in names if names[x]
            }
        # With these probes all earlier lines and rows have to be written when a launch crashes.
        self._is_prompt = "names" in probes.names or findings.stops

    def at(self, phase: str, otherwise: Act) -> Act:
        """The function to call at a phase ("before" or "after") with a launch's index and values.

        It leaves a mark as well if a probe wants marks.
        """
        act = self._unmarked(phase, otherwise)
        return self._marked(phase, act) if self._probes.marks else act

    def _marked(self, phase: str, act: Act) -> Act:
        """`act` with a mark of the launch; the native version is the native `act` with one."""
        alone = self._probes.has_marks_alone(phase)
        quicker = self._quicker.get(phase)

        def make_native(module: ModuleType) -> Act:
            quick = act if quicker is None else quicker(module)
            otherwise = leave_marks(phase, self._calls, quick, alone=alone)
            made: Act = module.Marking(self._calls, quick, otherwise, phase == "before", alone)
            return made

        self._quicker[phase] = make_native
        return leave_marks(phase, self._calls, act, alone=alone)

    def _unmarked(self, phase: str, otherwise: Act) -> Act:
        if phase in self._plans:
            return self._measured(phase, otherwise)
        if self._probes.has_names_alone(phase):
            with contextlib.suppress(UnicodeError):  # the slow path warns about such names
                launches, style = self._launches.values(), self._printer.style
                act, self._quicker[phase] = announce(
                    phase, launches, style, self._calls, otherwise, self._failed
                )
                return act
        return otherwise

    def inputs(self, otherwise: Act) -> Act:
        """The function to call with the inputs of a call."""
        if "inputs" not in self._plans or self._probes.of_inputs:
            return otherwise
        act = self._measured("inputs", lambda _, *values: otherwise(*values))
        make_native = self._quicker["inputs"]
        self._quicker["inputs"] = lambda module: partial(make_native(module), INPUTS)
        return partial(act, INPUTS)

    def open(self, call: RunningCall) -> None:
        """Prepare the fast paths for a call that starts."""
        call.stdout = self._printer.file()
        call.start = self._printer.style.start(call.number).encode()
        if call.stdout is not None:
            # Lines are written to the descriptor: what the program printed before comes first.
            with contextlib.suppress(OSError, ValueError):
                call.stdout.flush()
        if self._plans and self._queue is None:
            self._queue = start_queue()
        if self._quicker:
            self._hasten()
        if not self._plans:
            return
        if self._queue is not None:
            lines = COLLECTS if call.stdout is None else call.stdout.descriptor
            call.collects = call.stdout is None
            call.is_prompt = self._is_prompt or call.collects
            into = call.directory
            rows = -1 if into is None or isinstance(into, RecordedCall) else into.duplicate()
            call.queued = self._queue.open(lines, rows, call.is_prompt, call.start)
            if isinstance(into, RecordedCall):
                into.queue_into(call.queued)
            call.measure = self._queue.launch
            call.is_quick = not call.collects

    def _hasten(self) -> None:
        """Exchange the fast paths for native ones, if the extension module can be built."""
        quicker, self._quicker = self._quicker, {}
        if self._plans and self._queue is None:
            return
        if (module := native_calls.module()) is not None:
            for phase, make in quicker.items():
                self._exchange(phase, make(module))

    def close(self, call: RunningCall) -> None:
        """Free what the fast paths keep for a call that is over."""
        self._settle(call)
        if call.queued and self._queue is not None:
            self._queue.close(call.queued)
            call.queued = 0

    def settle(self) -> None:
        """Issue the measurements that wait for a memory line or the next launch."""
        if self._queue is not None:
            self._queue.settle()

    def _settle(self, call: RunningCall | None) -> None:
        """Issue the waiting measurements of a call, before their memory is written or freed."""
        if call is not None and call.held and self._queue is not None:
            self._queue.settle()
            call.held.clear()

    def finish(self) -> None:
        """At the end of the program: wait until all is written, and report failures."""
        drain_queue()
        self._report_problems()

    def _measured(self, phase: str, otherwise: Act) -> Act:
        """The fast path of a phase at which values are measured through the event queue."""
        plans, launches, measure = self._plans[phase], self._launches, self._measure
        as_before, calls, settle = plans.measure_as_before, self._calls, self._settle

        def at(launch: int, *values: Any) -> None:
            call = calls.get(get_ident())
            if call is not None and call.is_quick and not call.pending and launch != call.slow:
                try:
                    result = as_before(call.measure, call, launch, values)
                except Exception:
                    result = 0  # the slower paths will report the error
                if result:
                    if result == 2:
                        self._report_problems()
                    return
            known = None if launch == INPUTS else launches[launch]
            labels = self._inputs if known is None else known.labels[phase]
            if not measure(plans, known, labels, values):
                settle(call)
                otherwise(launch, *values)

        def make_native(module: ModuleType) -> Act:
            assert self._queue is not None
            made: Act = plans.make_native(module, self._queue, calls, at, self._report_problems)
            return made

        self._quicker[phase] = make_native
        return at

    def _measure(
        self,
        plans: Plans,
        launch: ProbedLaunch | None,
        labels: tuple[Label, ...],
        values: tuple[Any, ...],
    ) -> bool:
        """Measure values through the event queue; false if they have to take the slow path."""
        call = self._calls.get(get_ident())
        if (
            call is None
            or not call.queued
            or call.pending
            or (launch is not None and launch.index == call.slow)
        ):
            return False
        assert self._queue is not None
        try:
            result = plans.measure(self._queue, call, launch, labels, values)
        except Exception:
            return False  # the slow path will report the error
        if result and call.collects:
            self._printer.write([self._queue.collected(call.queued)])
        if result == 2:
            self._report_problems()
        return bool(result)

    def _report_problems(self) -> None:
        if self._queue is not None:
            for about, problem in self._queue.problems():
                self._printer.warn(about, problem)
            if (finding := self._queue.finding()) is not None:
                self._findings.end(self._calls.get(get_ident()), *finding)

    def _failed(self, about: str, error: Exception) -> None:
        self._printer.warn(about, f"{type(error).__name__}: {error}")
