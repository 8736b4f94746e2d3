"""Receives the calls that an instrumented wrapper makes, and hands them to the probes.

Statistics are queued on the device where the values are, and fetched for a whole launch at once:
what was read before it waits for what is read after it, so that probing costs one transfer per
launch, unless a probe wants it in the dump before the launch runs. Values on the CPU need no
transfer, and are reported at once.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any

import torch

from .calls import Calls
from .capture import Capture, Rows
from .device import KERNELS, first_line, is_capturing
from .dump import DEFAULT, Dump, Run
from .event import Call, Event, Label, Launch, Value, first_values
from .expected import Expected
from .probes import Probe
from .process import is_data_worker, read_rank, say, without_modes
from .statistics import Record, collect, has_memory, measure
from .text import Text, Upstream, start

_MOST_LATER = 4096  # pairs of CUDA events that wait to be read


class Recorder:
    """The probes of one wrapper. Its methods never raise: a failing probe warns once."""

    def __init__(
        self,
        options: dict[str, Any],
        launches: list[dict[str, Any]],
        inputs: Sequence[str] = (),
    ) -> None:
        self.rank = read_rank()
        self._quiet = os.environ.get("REWRITER_QUIET", "0") not in ("", "0")
        # A file that was instrumented by an earlier version has fewer options.
        self._label: str = options.get("label", "")
        self.is_upstream = options["format"] == "upstream"
        self.style = (
            Upstream() if self.is_upstream else Text(self.rank, options["values"], self._label)
        )
        wanted = os.environ.get("REWRITER_CALLS") or options.get("calls", "")
        self._wanted = Calls(wanted) if wanted else None
        self._number = 0  # of the next call
        self.probes: tuple[str, ...] = tuple(options["probes"])
        self._launches = {row["launch"]: Launch.read(row) for row in launches}
        self._inputs = tuple(Label("in", name, name) for name in inputs)
        self.expected = tuple(Expected.read(row) for row in options.get("expected", ()))
        self._reads_inputs = bool(options.get("reads_inputs", True))
        self._probes = _probes(options)
        # Most probes have none of these, and launches are many.
        self._starts = _own(self._probes["before"], "start")
        self._stops = _own(self._probes["after"], "stop")[::-1]
        self._checks = {phase: _own(probes, "check") for phase, probes in self._probes.items()}
        self._shows_values = options["values"] or self.is_upstream
        root = os.environ.get("REWRITER_DUMP", "")
        saves = any(probe.saves for probes in self._probes.values() for probe in probes)
        self._dumping = bool(root) or saves
        self._dump = Dump(Path(root or DEFAULT).absolute(), self.rank, options, launches)
        kinds = {launch.kind for launch in self._launches.values()}
        self._on_cpu = "cpp" in kinds and not kinds & KERNELS
        self._calls: dict[int, Call] = {}
        self._outside: dict[int, Call] = {}  # calls that are not wanted, within a CUDA graph
        self._ended: list[Call] = []
        self._captures: list[Capture] = []
        labels = [x for launch in self._launches.values() for x in launch.labels.values()]
        self._rows = Rows(sum(map(len, labels), len(self._inputs)))
        self._is_silent = False
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        atexit.register(self._finish)

    def begin(self, values: Sequence[Any] | None = None) -> None:
        """A call of the wrapper starts in this thread; `values` are what it was called with."""
        # Such a process is one of many, and not the one that is probed.
        self._is_silent = self._is_silent or is_data_worker()
        self._guarded("begin", self._begin, values)

    def inputs(self, *values: Any) -> None:
        """The inputs of the call."""
        if self._wanted is not None and get_ident() not in self._calls:
            return
        self._guarded("inputs", self._at_inputs, values)

    def before(self, launch: int, *values: Any) -> None:
        """The launch comes next; `values` are what the table says it reads."""
        if self._wanted is not None and get_ident() not in self._calls:
            self._pass(launch, "before", values)
            return
        self._guarded(f"#{launch}", self._at, launch, "before", values)

    def after(self, launch: int, *values: Any) -> None:
        """The launch was issued; `values` are what the table says it read and wrote."""
        if self._wanted is not None and get_ident() not in self._calls:
            self._pass(launch, "after", values)
            return
        self._guarded(f"#{launch}", self._at, launch, "after", values)

    def write(self, lines: list[str]) -> None:
        """Write to standard output in one piece, flushed: what follows may crash."""
        if self._quiet:
            return
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor in the dump; the file's path inside the directory of this call.

        Empty where there is nothing to save, or no directory could be made (which was said).
        """
        directory = event.call.directory
        if directory is None or not has_memory(value.content):
            return ""
        return directory.save(event, value)

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Add a row of its own about an event to the dump, if one is written."""
        if event.call.directory is not None:
            event.call.directory.note(event, facts)

    def later(self, event: Event, act: Callable[[], None]) -> None:
        """Act when the call is over, or so much is waiting that the device is waited for."""
        event.call.later.append((event, act))
        if len(event.call.later) >= _MOST_LATER and not is_capturing():
            self._catch_up(event.call)

    def about(self, event: Event) -> str:
        """The start of a line about a launch as a whole: `[rewriter 0] #12 KERNEL`."""
        begin = start(self.rank, self._label, event.call.number)
        if event.launch is None:
            return f"{begin} {event.phase}"
        again = f".{event.iteration}" if event.iteration else ""
        return f"{begin} #{event.launch.index}{again} {event.launch.kernel}"

    def runs_on_gpu(self, event: Event) -> bool:
        """Whether CUDA events can time a launch: by its kind, and those of the launches around."""
        if event.launch is None or event.launch.kind == "cpp" or self._on_cpu:
            return False
        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured, so that nothing may be waited for."""
        return is_capturing()

    def warn(self, about: str, message: str) -> None:
        """Say something once to standard error, about the first launch that it befell.

        Paths and numbers in a message make it no other message.
        """
        said = re.sub(r"(?<!\S)\S*/\S*|\d+", "", message)
        if said not in self._warned:
            self._warned.add(said)
            say(f"[rewriter {self.rank}] warning: {about}: {message}\n")

    def _guarded(self, about: str, act: Callable[..., None], *args: Any) -> None:
        """Act so that it can neither stop the model nor be recorded by autograd.

        One thread at a time: lines never interleave. A fork inherits the recorder but is not the
        program that is probed.
        """
        if self._is_silent:
            return
        if self._pid != os.getpid():
            self.warn(about, "this process is a fork of the one that is probed, and is not")
            return
        with self._lock:
            try:
                with torch.no_grad(), without_modes():
                    act(*args)
            except Exception as error:
                self.warn(about, f"{type(error).__name__}: {error}")

    def _begin(self, values: Sequence[Any] | None) -> None:
        thread = get_ident()
        self._outside.pop(thread, None)
        if thread in self._calls:
            self._ended.append(self._calls.pop(thread))
        number, self._number = self._number, self._number + 1
        is_wanted = self._wanted is None or number in self._wanted
        if not is_capturing():
            if self._ended or self._wanted is None:
                self._end()
            elif is_wanted:
                # What was replayed in calls that nobody asked for is not what this one replays.
                for capture in self._captures:
                    capture.read()
            elif not self._on_cpu and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                # The next call may be captured, and one that is wanted may replay that.
                self._rows.reserve(torch.device("cuda", torch.cuda.current_device()))
        if not is_wanted:
            return
        call = self._start(thread, number)
        if values is not None and len(values) != len(self._inputs):
            # The wrapper fails at it, so there will be no inputs.
            event = self._given(call, values)
            if event.unexpected:
                self.note(event, {"unexpected": event.unexpected[""]})

    def _call(self) -> Call:
        """The call that is running in this thread."""
        thread = get_ident()
        # What runs launches in a thread of its own does not say when a call begins there.
        return self._calls.get(thread) or self._start(thread, max(self._number - 1, 0))

    def _start(self, thread: int, number: int) -> Call:
        call = self._calls[thread] = Call(number=number)
        if self._dumping:
            try:
                call.directory = self._dump.start(number)
            except Exception as error:
                self.warn("dump", f"{type(error).__name__}: {error}")
        return call

    def _pass(self, launch: int, phase: str, contents: tuple[Any, ...]) -> None:
        """A launch of a call that is not wanted.

        What goes into a CUDA graph is measured all the same: calls that are wanted may replay it.
        """
        if not self._on_cpu and is_capturing():
            self._guarded(f"#{launch}", self._measure_replays, launch, phase, contents)

    def _measure_replays(self, index: int, phase: str, contents: tuple[Any, ...]) -> None:
        number = max(self._number - 1, 0)
        call = self._outside.setdefault(get_ident(), Call(number=number, is_wanted=False))
        launch = self._launches[index]
        event = Event(launch, phase, call.runs[index, phase], call)
        call.runs[index, phase] += 1
        self._take(event, launch.labels[phase], contents)
        if any(probe.reads_values for probe in self._acting(event)):
            self._add_to_capture(event)

    def _end(self, *, final: bool = False) -> None:
        """Finish the calls that are over; their threads have begun others, or the program ends."""
        ended, self._ended = self._ended, []
        for call in ended:
            self._flush(call)
            self._catch_up(call)
        self._replayed(ended, final=final)
        for call in ended:
            if call.directory is not None:
                self._dump.finish(call.directory)

    def _catch_up(self, call: Call) -> None:
        waiting, call.later = call.later, []
        for event, act in waiting:
            try:
                act()
            except Exception as error:
                self.warn(event.about, f"{type(error).__name__}: {first_line(error)}")

    def _replayed(self, ended: list[Call], *, final: bool) -> None:
        """Report the graphs that were replayed until these calls ended."""
        for capture in self._captures:
            try:
                replayed = capture.read()
            except Exception as error:
                self.warn("replay", f"{type(error).__name__}: {first_line(error)}")
                continue
            if not replayed and (capture.was_replayed or not final):
                continue
            call = capture.events[0][0].call
            if not ended and not call.is_wanted:
                continue
            if not replayed:
                self.warn("exit", "a CUDA graph was captured and never replayed: it has no values")
            directory, is_new = self._home(capture, ended)
            self._report(capture.events, directory)
            if directory is not None and is_new:
                self._dump.finish(directory)
        if final:
            self._captures.clear()

    def _home(self, capture: Capture, ended: list[Call]) -> tuple[Run | None, bool]:
        """Where the values of a replay go: to the call that captured it, or that replayed it.

        Where all of the wrapper is in the graph, a replay is no call; then it has a directory of
        its own, which is new.
        """
        for call in ended:
            if call.capture is capture:
                return call.directory, False
        for call in reversed(ended):
            if not capture.launches & {index for index, _ in call.runs}:
                return call.directory, False
        call = capture.events[0][0].call
        return (self._dump.start(call.number), True) if self._dumping else (None, False)

    def _at_inputs(self, contents: tuple[Any, ...]) -> None:
        event = self._given(self._call(), contents)
        if self._reads_inputs:
            self._read(event, self._inputs, contents)
        elif event.call.directory is not None:
            self._take(event, self._inputs, contents)
            event.call.directory.write(event)
        read = {value.label.name for value in event.values}
        for name, found in event.unexpected.items():
            if name not in read:
                # What is no value has no row.
                self.note(event, {"arg": name, "role": "in", "unexpected": found})

    def _given(self, call: Call, values: Sequence[Any]) -> Event:
        """Let the probes look at the inputs of a call that only ask what they are."""
        event = Event(None, "inputs", 0, call)
        for probe in self._probes["inputs"]:
            try:
                probe.given(event, values, self)
            except Exception as error:
                self.warn("inputs", f"{type(error).__name__}: {error}")
        return event

    def _at(self, index: int, phase: str, contents: tuple[Any, ...]) -> None:
        call = self._call()
        launch = self._launches[index]
        event = Event(launch, phase, call.runs[index, phase], call)
        call.runs[index, phase] += 1
        if phase == "after":
            for act in self._stops:
                self._ask(act, event)
        # Names first: they have to be out before anything that could fail is touched.
        for probe in self._probes[phase]:
            if not probe.reads_values:
                self._ask(probe.at, event)
        self._read(event, launch.labels[phase], contents)
        if phase == "before" and not event.error:
            for act in self._starts:
                self._ask(act, event)

    def _read(self, event: Event, labels: tuple[Label, ...], contents: tuple[Any, ...]) -> None:
        self._take(event, labels, contents)
        for act in self._checks["before" if event.launch is None else event.phase]:
            self._ask(act, event)
        if event.error:
            self._stop(event)
            return
        readers = [probe for probe in self._acting(event) if probe.reads_values]
        if readers and is_capturing():
            self._capture(event, readers)
            return
        for probe in readers:
            self._ask(probe.at, event)
        self._measure(event.call, event)

    def _take(self, event: Event, labels: tuple[Label, ...], contents: tuple[Any, ...]) -> None:
        for label, content in zip(labels, contents, strict=True):
            try:
                event.values += Value.read(label, content)
            except Exception as error:
                self.warn(f"{event.about} {label.name}", f"{type(error).__name__}: {error}")

    def _capture(self, event: Event, readers: list[Probe]) -> None:
        """Inside of a CUDA graph: nothing can be read before a replay."""
        for probe in readers:
            if probe.copies:
                name = type(probe).__module__.rpartition(".")[2]
                self.warn(
                    event.about,
                    f"{name} cannot copy to the host while a CUDA graph is being captured: only "
                    "statistics come from a replay",
                )
            else:
                self._ask(probe.at, event)
        self._add_to_capture(event)

    def _add_to_capture(self, event: Event) -> None:
        call = event.call
        if call.capture is None:
            call.capture = Capture(self._rows)
            self._captures.append(call.capture)
        call.capture.add(event, measured=self._is_measured(event))
        if call.capture.is_short:
            self.warn(
                event.about,
                "values of a CUDA graph are measured where the wrapper ran before it was captured",
            )

    def _is_measured(self, event: Event) -> bool:
        return self._dumping or any(probe.measures for probe in self._acting(event))

    def _stop(self, event: Event) -> None:
        """The device is faulty: nothing can be read from it any more, so say it and be still."""
        if event.launch is None:
            return  # the first launch finds it, too
        self._is_silent = True
        self.note(event, {"error": event.error})
        earlier = " (of something before this launch)" if event.phase == "before" else ""
        say(f"{self.about(event)}: {event.error}{earlier}\n")

    def _measure(self, call: Call, event: Event) -> None:
        wanted = self._is_measured(event)
        records = [measure(value.content) if wanted else None for value in event.tensors]
        if self._shows_values:
            for value in event.tensors:
                value.head = first_values(value.content)
        devices = {record.values.device for record in records if record} - {torch.device("cpu")}
        for device in devices:
            self._rows.reserve(device)
        for value in event.values:
            value.content = None
        call.pending.append((event, records))
        follows = event.launch is None or (
            event.phase == "before" and "after" in event.launch.labels
        )
        prompt = any(probe.prompt for probe in self._acting(event))
        if prompt or not (devices and follows):
            self._flush(call)

    def _acting(self, event: Event) -> list[Probe]:
        """The probes that an event concerns; inputs are what comes before everything."""
        return self._probes["before" if event.launch is None else event.phase]

    def _flush(self, call: Call) -> None:
        """Fetch the statistics that are pending, in one transfer, and report their events."""
        pending, call.pending = call.pending, []
        if not pending:
            return
        try:
            found = iter(collect([record for _, records in pending for record in records]))
            for event, _ in pending:
                for value in event.tensors:
                    value.statistics = next(found)
        except Exception as error:
            # What ran is still worth telling.
            self.warn(pending[0][0].about, f"{type(error).__name__}: {first_line(error)}")
        self._report(pending, call.directory)

    def _report(
        self, events: list[tuple[Event, list[Record | None]]], directory: Run | None
    ) -> None:
        for event, _ in events:
            for probe in self._acting(event):
                self._ask(probe.measured, event)
            if directory is not None:
                directory.write(event)

    def _ask(self, act: Callable[[Event, Recorder], None], event: Event) -> None:
        """Let one probe act; its failure is not that of the others."""
        try:
            act(event, self)
        except Exception as error:
            self.warn(event.about, f"{type(error).__name__}: {error}")

    def _finish(self) -> None:
        self._ended += [self._calls.pop(thread) for thread in list(self._calls)]
        if self._ended or self._captures:
            self._guarded("exit", lambda: self._end(final=True))


def _probes(options: dict[str, Any]) -> dict[str, list[Probe]]:
    """The probes that act at each phase."""
    result: dict[str, list[Probe]] = {"inputs": [], "before": [], "after": []}
    for name in options["probes"]:
        probe: Probe = import_module(f".probes.{name}", __package__).PROBE()
        is_fixed = probe.spans or probe.when == "inputs"
        when = probe.when if is_fixed else options["when"] or probe.when
        for phase in ("before", "after") if when == "both" else (when,):
            result[phase].append(probe)
    return result


def _own(probes: list[Probe], method: str) -> list[Callable[[Event, Recorder], None]]:
    """This method of those probes whose class has one of its own."""
    inherited = getattr(Probe, method)
    return [getattr(x, method) for x in probes if getattr(type(x), method) is not inherited]
