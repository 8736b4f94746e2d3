"""Receives the calls that an instrumented wrapper makes, and passes them on to the probes.

`event_reader.py` reads the values of a launch, `fast_paths.py` has quicker ways for common sets of
probes, and `memory_lines.py` takes the memory lines.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from . import device, graph_marks
from .calls import wanted_numbers
from .dump import DEFAULT, DumpWriter
from .event import Event, Label, ProbedLaunch, Value
from .event_queue import drain_queue
from .event_reader import EventReader
from .expected import read_table
from .fast_paths import FastPaths
from .findings import Findings
from .flight_dump import RecordedCall, RecordWriter
from .forks import register_for_forks
from .gpu_kinds import GPU_KINDS
from .graphs import Graphs, replaying_call
from .memory.patterns import OFF
from .memory.patterns import PROBES as MEMORY_PROBES
from .memory.patterns import VARIABLE as FILL
from .memory_lines import MemoryLines, NoMemoryLines, TakesMemoryLines
from .printer import Printer
from .probe_set import ProbeSet
from .process import is_data_worker, without_modes
from .running_call import RunningCall

if TYPE_CHECKING:
    from .memory.watch import Memory

_MOST_LATER = 4096  # pairs of CUDA events that wait to be read


class Recorder:
    """Passes the calls of one wrapper on to its probes.

    Its methods never raise: a probe that fails warns once.
    """

    def __init__(
        self,
        options: dict[str, Any],
        launches: list[dict[str, Any]],
        inputs: Sequence[str] = (),
    ) -> None:
        self._printer = Printer(options)
        self.rank = self._printer.rank
        self.style = self._printer.style
        self.is_upstream = self._printer.is_upstream
        # `Dormant` chooses the calls itself.
        self._wanted = None if options.get("dormant") else wanted_numbers(options)
        self._number = 0  # the number of the next call
        self._launches = {row["launch"]: ProbedLaunch.read(row) for row in launches}
        self._inputs = tuple(Label("in", name, name) for name in inputs)
        self.expected, self.guards = read_table(options.get("expected", ()))
        self._reads_inputs = bool(options.get("reads_inputs", True))
        self._probes = ProbeSet(options)
        self.probes = self._probes.names
        # Probes that are put into a running program get a directory, each time another one.
        root = options.get("directory") or os.environ.get("REWRITER_DUMP", "")
        self._dumping = bool(root) or self._probes.saves
        self._root = Path(root or DEFAULT).absolute()
        make = RecordWriter if "record" in self.probes else DumpWriter
        self._dump = make(self._root, self.rank, options, launches)
        kinds = {launch.kind for launch in self._launches.values()}
        self._on_cpu = "cpp" in kinds and not kinds & GPU_KINDS
        self._calls: dict[int, RunningCall] = {}
        self._outside: dict[int, RunningCall] = {}  # unwanted calls that are being captured
        self._ended: list[RunningCall] = []
        labels = [x for launch in self._launches.values() for x in launch.labels.values()]
        values = sum(map(len, labels), len(self._inputs))
        self._graphs = Graphs(values, self.warn)
        self._has_values = bool(values)
        self._is_silent = False
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._findings = Findings(options, self._launches, self._printer)
        self._events = EventReader(
            self,
            self._probes,
            self._graphs,
            self._findings,
            self._silence,
            is_dumping=self._dumping,
            shows_values=options["values"] or self.is_upstream,
        )
        self._memory: Memory | None = None
        of_memory = not set(MEMORY_PROBES).isdisjoint(options["probes"])
        if of_memory and os.environ.get(FILL) != OFF:
            from .memory.watch import Memory

            self._memory = Memory(options, self._launches, self._printer, self.warn)
        self._lines = None if self._memory is None else MemoryLines(self._memory, self)
        self._take_lines(self._lines or NoMemoryLines())
        self._fast = FastPaths(
            self._probes,
            self._printer,
            self._launches,
            self._inputs,
            self._calls,
            self._findings,
            self._exchange,
            joins_memory=self._memory is not None and {"bounds", "stale"} <= set(options["probes"]),
        )
        self.before: Callable[..., None] = self._fast.at("before", self._before)
        self.after: Callable[..., None] = self._fast.at("after", self._after)
        self.inputs: Callable[..., None] = self._take_inputs
        if self._reads_inputs:
            self.inputs = self._fast.inputs(self._take_inputs)
        # A fork of the probed process is not probed; see also `guarded`.
        self._is_fork = False
        register_for_forks(self)
        atexit.register(self._finish)

    def begin(self, values: Sequence[Any] | None = None, *, number: int | None = None) -> None:
        """A call of the wrapper starts in this thread with the inputs `values`.

        `number` is the number of the call, given by a caller that does not report every call.
        """
        if number is not None:
            self._number = number
        # Workers that load data are not the program that is to be probed.
        self._is_silent = self._is_silent or is_data_worker()
        self.guarded("begin", self._begin, values)

    def end_call(self, thread: int) -> None:
        """End the call of a thread now, instead of when the thread begins another one."""

        def act() -> None:
            if thread in self._calls:
                self._ended.append(self._calls.pop(thread))
            if not device.is_capturing():
                self._end()

        self.guarded("end", act)

    def release(self) -> None:
        """Write what is left, and drop the exit handler. No call may follow."""
        self._finish()
        atexit.unregister(self._finish)

    def settle(self) -> None:
        """Issue the measurements that wait for a memory line or the next launch."""
        self._fast.settle()

    def _take_lines(self, lines: TakesMemoryLines) -> None:
        """Let `lines` take the memory lines from now on."""
        self.allocated, self.checked = lines.allocated, lines.checked
        self.reused, self.released = lines.reused, lines.released

    def _exchange(self, phase: str, act: Callable[..., None]) -> None:
        """Call `act` at a phase of launches from now on."""
        if phase == "inputs":
            self.inputs = act
        elif phase == "before":
            self.before = act
        else:
            self.after = act

    def _take_inputs(self, *values: Any) -> None:
        """The slow path for the inputs of the call."""
        if self._wanted is not None and get_ident() not in self._calls:
            return
        self.guarded("inputs", self._at_inputs, values)

    def _before(self, launch: int, *values: Any) -> None:
        """The slow path before a launch; `values` are those that the table lists for "before"."""
        if self._wanted is not None and get_ident() not in self._calls:
            self._pass(launch, "before", values)
            return
        self.guarded(f"#{launch}", self._at, launch, "before", values)

    def _after(self, launch: int, *values: Any) -> None:
        """The slow path after a launch; `values` are those that the table lists for "after"."""
        if self._wanted is not None and get_ident() not in self._calls:
            self._pass(launch, "after", values)
            return
        self.guarded(f"#{launch}", self._at, launch, "after", values)

    def undisturbed_call(self) -> RunningCall | None:
        """The call in this thread, if memory lines can act in it with the lock alone; else None.

        They do not need the rest of `guarded` unless dispatch modes are active: autograd does not
        track the tensors that they write.
        """
        if self._is_silent or self._is_fork or torch._C._len_torch_dispatch_stack():
            return None
        return self._calls.get(get_ident())

    def wanted_call(self) -> RunningCall | None:
        """The call in this thread; None if it is not to be recorded."""
        if self._wanted is not None and get_ident() not in self._calls:
            return None
        return self._call()

    def end(self) -> None:
        """End the call in this thread. Otherwise it ends when the thread begins its next call."""
        self.guarded("end", self._end_here)

    def close(self) -> None:
        """End recording for good: the probes were removed from the running program.

        No call may be running in the wrapper.
        """
        self._finish()
        self._is_silent = True
        atexit.unregister(self._finish)

    def write(self, lines: list[str]) -> None:
        """Write lines to standard output in one piece and flush: the next launch may crash."""
        self._printer.write(lines)

    def warn(self, about: str, message: str) -> None:
        """Write a warning to standard error, unless the same message was written before."""
        self._printer.warn(about, message)

    def about(self, event: Event) -> str:
        """The beginning of a line about a whole launch: `[rewriter 0] #12 KERNEL`."""
        return self._printer.about(event)

    def allows(self, event: Event, value: Value) -> bool:
        """Whether `--allow` names the value, so that it may be NaN or infinite at this event."""
        return self._findings.allows(event, value)

    def stop_at(self, event: Event, value: Value) -> None:
        """With `--stop`: end the program at this NaN, once the event is written."""
        self._findings.stop_at(event, value)

    def later(self, event: Event, call: RunningCall, act: Callable[[], None]) -> None:
        """Run `act`, which waits for the device, at the end of the call, or when too many wait."""
        call.later.append((event, act))
        if len(call.later) >= _MOST_LATER and not device.is_capturing():
            self._catch_up(call)

    def runs_on_gpu(self, event: Event) -> bool:
        """Whether to time a launch by CUDA events, by the kinds of the wrapper's launches."""
        if event.launch is None or event.launch.kind == "cpp" or self._on_cpu:
            return False
        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured: then nothing may synchronise."""
        return device.is_capturing()

    def mark(self, event: Event, call: RunningCall) -> bool:
        """Capture a mark, which each replay of the graph leaves at this event; false on failure."""
        return graph_marks.leave(self._root, event, call)

    def guarded(self, about: str, act: Callable[..., None], *args: Any) -> None:
        """Run `act(*args)` so that it can neither stop the model nor be recorded by autograd.

        Runs one thread at a time, so that lines never interleave, and nothing in a fork, which
        inherits the recorder but is not probed. An exception becomes a warning about `about`.
        """
        if self._is_silent:
            return
        if self._pid != os.getpid():
            text = (
                "a fork of the probed process is not recorded; one that is started anew (spawn) is"
            )
            self.warn(f"process {os.getpid()}", text)
            return
        with self.lock:
            try:
                with torch.no_grad(), without_modes():
                    act(*args)
            except Exception as error:
                self.warn(about, f"{type(error).__name__}: {error}")

    def forked(self) -> None:
        """In a forked process: stop recording."""
        self._is_fork = True
        self._calls.clear()

    def _begin(self, values: Sequence[Any] | None) -> None:
        thread = get_ident()
        self._outside.pop(thread, None)
        if thread in self._calls:
            self._ended.append(self._calls.pop(thread))
        number, self._number = self._number, self._number + 1
        is_wanted = self._wanted is None or number in self._wanted
        if not device.is_capturing():
            if self._ended or self._wanted is None:
                self._end()
            elif is_wanted:
                # Replays in unwanted calls since the last wanted one do not belong to this call.
                self._graphs.skip_replays()
            is_on_gpu = not self._on_cpu and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            if self._has_values and is_on_gpu:
                # Also in unwanted calls: the next may be captured, and a wanted one replay that.
                self._graphs.start(torch.device("cuda", torch.cuda.current_device()))
            if is_on_gpu and self._dumping and "sync" in self.probes:
                graph_marks.start(self._root)
        if not is_wanted:
            return
        call = self._start(thread, number)
        if values is not None and len(values) != len(self._inputs):
            # The wrapper will fail at the wrong number of inputs, before it reports them.
            event = self._given(call, values)
            if event.unexpected:
                call.note(event, {"unexpected": event.unexpected[""]})

    def _end_here(self) -> None:
        thread = get_ident()
        self._outside.pop(thread, None)
        if thread in self._calls:
            self._ended.append(self._calls.pop(thread))
        if self._ended and not device.is_capturing():
            self._end()

    def _call(self) -> RunningCall:
        """The call that is running in this thread."""
        thread = get_ident()
        # A program may run launches in a thread in which the wrapper never called `begin`.
        return self._calls.get(thread) or self._start(thread, max(self._number - 1, 0))

    def _start(self, thread: int, number: int) -> RunningCall:
        call = self._calls[thread] = RunningCall(number)
        if self._lines is not None and (lines := self._lines.make_native(self._calls)) is not None:
            self._take_lines(lines)
        call.uses_cuda = not self._on_cpu and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if self._dumping:
            try:
                call.directory = self._dump.start(number)
                if isinstance(call.directory, RecordedCall):
                    call.directory.leave_marks_of(call)
                if call.directory is None:
                    self.warn("dump", self._dump.full)
            except Exception as error:
                self.warn("dump", f"{type(error).__name__}: {error}")
        self._fast.open(call)
        return call

    def _pass(self, launch: int, phase: str, contents: tuple[Any, ...]) -> None:
        """A launch of a call that is not to be recorded.

        During CUDA graph capture it is measured all the same: a wanted call may replay the graph.
        """
        if not self._on_cpu and device.is_capturing():
            self.guarded(f"#{launch}", self._measure_replays, launch, phase, contents)

    def _measure_replays(self, index: int, phase: str, contents: tuple[Any, ...]) -> None:
        number = max(self._number - 1, 0)
        call = self._outside.setdefault(get_ident(), RunningCall(number, is_wanted=False))
        launch = self._launches[index]
        event = call.event(launch, phase)
        self._events.take(event, launch.labels[phase], contents)
        if self._probes.readers(event):
            self._graphs.add(event, call, measured=self._events.is_measured(event))

    def _end(self, *, final: bool = False) -> None:
        """Finish the calls in `_ended`. `final`: the program ends."""
        ended, self._ended = self._ended, []
        for call in ended:
            self._events.flush(call)
            self._catch_up(call)
            self._finish_memory(call)
        self._replayed(ended, final=final)
        for call in ended:
            if not final:  # a thread may still be in it when the program ends
                self._fast.close(call)
            if call.directory is not None:
                self._dump.finish(call.directory)

    def _finish_memory(self, call: RunningCall) -> None:
        if self._memory is None:
            return
        try:
            self._memory.finish(call)
        except Exception as error:
            self.warn("memory", f"{type(error).__name__}: {device.first_line(error)}")

    def _catch_up(self, call: RunningCall) -> None:
        """Run what `later` put off, which waits for the device."""
        waiting, call.later = call.later, []
        for event, act in waiting:
            try:
                act()
            except Exception as error:
                self.warn(event.about, f"{type(error).__name__}: {device.first_line(error)}")

    def _replayed(self, ended: list[RunningCall], *, final: bool) -> None:
        """Report the CUDA graphs that were replayed until the calls in `ended` were over."""
        for capture, captured in self._graphs.read(ended, final=final):
            replaying = replaying_call(capture, ended)
            call = replaying or captured
            for event, _ in capture.events:
                event.call = call.number
            directory = call.directory
            if replaying is None:
                directory = self._dump.start(call.number) if self._dumping else None
            self._events.report(capture.events, call, directory)
            if directory is not None and replaying is None:
                self._dump.finish(directory)

    def _at_inputs(self, contents: tuple[Any, ...]) -> None:
        call = self._call()
        event = self._given(call, contents)
        if self._reads_inputs:
            self._events.read(event, call, self._inputs, contents)
        elif call.directory is not None:
            self._events.take(event, self._inputs, contents)
            call.directory.write(event)
        read = {value.label.name for value in event.values}
        for name, problem in event.unexpected.items():
            if name not in read:
                # An input that is None or could not be read has no row otherwise.
                call.note(event, {"arg": name, "role": "in", "unexpected": problem})

    def _given(self, call: RunningCall, values: Sequence[Any]) -> Event:
        """Let the probes that check inputs look at those of a call. Returns the inputs' event."""
        event = call.inputs()
        for probe in self._probes.of_inputs:
            try:
                probe.given(event, values, call, self)
            except Exception as error:
                self.warn("inputs", f"{type(error).__name__}: {error}")
        return event

    def _at(self, index: int, phase: str, contents: tuple[Any, ...]) -> None:
        """One phase of a launch on the slow path: let all probes act in their order."""
        call = self._call()
        if call.queued:
            drain_queue()
        launch = self._launches[index]
        event = call.event(launch, phase)
        call.slow = index if phase == "before" else -2
        if phase == "after":
            for act in self._probes.stops:
                self._events.ask(act, event, call)
        # `names` first: its line has to be printed before anything is touched that could fail.
        for probe in self._probes.acting(event):
            if not probe.reads_values:
                self._events.ask(probe.at, event, call)
        self._events.read(event, call, launch.labels[phase], contents)
        if phase == "before" and not event.error:
            for act in self._probes.starts:
                self._events.ask(act, event, call)

    def _silence(self) -> None:
        """End all probing: the device failed, and nothing can be read from it any more."""
        self._is_silent = True
        for running in self._calls.values():
            running.stdout, running.queued, running.watch = None, 0, False

    def _finish(self) -> None:
        self._ended += [self._calls.pop(thread) for thread in list(self._calls)]
        if self._ended or self._graphs:
            self.guarded("exit", lambda: self._end(final=True))
        if self._pid == os.getpid():
            self._fast.finish()
