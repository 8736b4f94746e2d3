"""Receives the calls that an instrumented wrapper makes, and hands them to the probes.

Statistics are queued on the device where the values are, and fetched for a whole launch at once:
what was read before it waits for what is read after it, so that probing costs one transfer per
launch. Values on the CPU need no transfer, and are reported at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .dump import DEFAULT, Dump, Run
from .event import Event, Label, Launch, Value
from .probes import Probe
from .statistics import Record, collect, has_memory, measure
from .text import HEAD, Text, Upstream


def say(text: str) -> None:
    """Write to standard error, if there is one: what cannot be said must not stop the model."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)


class Silent:
    """Takes every call and does nothing: `REWRITER_PROBE=off`."""

    def begin(self) -> None:
        pass

    def inputs(self, *values: Any) -> None:
        pass

    def before(self, launch: int, *values: Any) -> None:
        pass

    def after(self, launch: int, *values: Any) -> None:
        pass


@dataclass
class _Call:
    """One call of the wrapper in one thread.

    `runs` counts how often each phase of each launch came, `pending` are the events whose
    statistics are still on their device.
    """

    directory: Run | None = None
    runs: Counter[tuple[int, str]] = field(default_factory=Counter)
    pending: list[tuple[Event, list[Record | None]]] = field(default_factory=list)


class Recorder:
    """The probes of one wrapper. Its methods never raise: a failing probe warns once."""

    def __init__(
        self,
        options: dict[str, Any],
        launches: list[dict[str, Any]],
        inputs: Sequence[str] = (),
    ) -> None:
        rank = os.environ.get("RANK", "")
        self.rank = int(rank) if rank.isdecimal() else 0
        self.style = (
            Upstream() if options["format"] == "upstream" else Text(self.rank, options["values"])
        )
        self.probes: tuple[str, ...] = tuple(options["probes"])
        self._launches = {row["launch"]: Launch.read(row) for row in launches}
        self._inputs = tuple(Label("in", name, name) for name in inputs)
        self._probes = _probes(options)
        self._shows_values = options["values"] or options["format"] == "upstream"
        wanted = os.environ.get("REWRITER_DUMP", "")
        saves = any(probe.saves for probes in self._probes.values() for probe in probes)
        self._dumping = bool(wanted) or saves
        self._dump = Dump(Path(wanted or DEFAULT).absolute(), self.rank, options, launches)
        self._calls: dict[int, _Call] = {}
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        atexit.register(self._finish)

    def begin(self) -> None:
        """A call of the wrapper starts in this thread."""
        self._guarded("begin", self._begin)

    def inputs(self, *values: Any) -> None:
        """The inputs of the call."""
        self._guarded("inputs", self._at_inputs, values)

    def before(self, launch: int, *values: Any) -> None:
        """The launch comes next; `values` are what the table says it reads."""
        self._guarded(f"#{launch}", self._at, launch, "before", values)

    def after(self, launch: int, *values: Any) -> None:
        """The launch was issued; `values` are what the table says it read and wrote."""
        self._guarded(f"#{launch}", self._at, launch, "after", values)

    def write(self, lines: list[str]) -> None:
        """Write to standard output in one piece, flushed: what follows may crash."""
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor in the dump; the file's path inside the directory of this call.

        Empty where there is nothing to save, or no directory could be made (which was said).
        """
        directory = self._call().directory
        if directory is None or not has_memory(value.content):
            return ""
        return directory.save(event, value)

    def warn(self, about: str, message: str) -> None:
        """Say something once to standard error, about the first launch that it befell.

        Paths and numbers in a message make it no other message.
        """
        said = re.sub(r"\S*/\S*|\d+", "", message)
        if said not in self._warned:
            self._warned.add(said)
            say(f"[rewriter {self.rank}] warning: {about}: {message}\n")

    def _guarded(self, about: str, act: Callable[..., None], *args: Any) -> None:
        """Act so that it can neither stop the model nor be recorded by autograd.

        One thread at a time: lines never interleave. A fork, such as a DataLoader worker,
        inherits the recorder but is not the program that is probed.
        """
        if self._pid != os.getpid():
            self.warn(about, "this process is a fork of the one that is probed, and is not")
            return
        with self._lock:
            try:
                with torch.no_grad(), _without_modes():
                    act(*args)
            except Exception as error:
                self.warn(about, f"{type(error).__name__}: {error}")

    def _begin(self) -> None:
        thread = threading.get_ident()
        if thread in self._calls:
            self._end(self._calls.pop(thread))
        self._call()

    def _call(self) -> _Call:
        """The call that is running in this thread."""
        thread = threading.get_ident()
        if thread not in self._calls:
            call = self._calls[thread] = _Call()
            if self._dumping:
                try:
                    call.directory = self._dump.start()
                except Exception as error:
                    self.warn("dump", f"{type(error).__name__}: {error}")
        return self._calls[thread]

    def _end(self, call: _Call) -> None:
        self._flush(call)
        if call.directory is not None:
            call.directory.close()

    def _at_inputs(self, contents: tuple[Any, ...]) -> None:
        readers = [probe for probe in self._probes["before"] if probe.reads_values]
        self._read(self._call(), Event(None, "inputs", 0), self._inputs, contents, readers)

    def _at(self, index: int, phase: str, contents: tuple[Any, ...]) -> None:
        call = self._call()
        launch = self._launches[index]
        event = Event(launch, phase, call.runs[index, phase])
        call.runs[index, phase] += 1
        # Names first: they have to be out before anything that could fail is touched.
        for probe in self._probes[phase]:
            if not probe.reads_values:
                self._ask(probe.at, event)
        readers = [probe for probe in self._probes[phase] if probe.reads_values]
        self._read(call, event, launch.labels[phase], contents, readers)

    def _read(
        self,
        call: _Call,
        event: Event,
        labels: tuple[Label, ...],
        contents: tuple[Any, ...],
        readers: list[Probe],
    ) -> None:
        if _is_capturing(contents):
            self.warn(event.about, "values cannot be read while a CUDA graph is being captured")
        else:
            for label, content in zip(labels, contents, strict=True):
                try:
                    event.values += Value.read(label, content)
                except Exception as error:
                    self.warn(f"{event.about} {label.name}", f"{type(error).__name__}: {error}")
        for probe in readers:
            self._ask(probe.at, event)
        self._measure(call, event)

    def _measure(self, call: _Call, event: Event) -> None:
        wanted = self._dumping or any(probe.measures for probe in self._acting(event))
        records = [measure(value.content) if wanted else None for value in event.tensors]
        if self._shows_values:
            for value in event.tensors:
                value.head = _head(value.content)
        on_device = any(record and record.values.device.type != "cpu" for record in records)
        for value in event.values:
            value.content = None
        call.pending.append((event, records))
        follows = event.launch is None or (
            event.phase == "before" and "after" in event.launch.labels
        )
        if not (on_device and follows):
            self._flush(call)

    def _acting(self, event: Event) -> list[Probe]:
        """The probes that an event concerns; inputs are what comes before everything."""
        return self._probes["before" if event.launch is None else event.phase]

    def _flush(self, call: _Call) -> None:
        """Fetch the statistics that are pending, in one transfer, and report their events."""
        pending, call.pending = call.pending, []
        found = iter(collect([record for _, records in pending for record in records]))
        for event, _ in pending:
            for value in event.tensors:
                value.statistics = next(found)
            for probe in self._acting(event):
                self._ask(probe.measured, event)
            if call.directory is not None:
                call.directory.write(event)

    def _ask(self, act: Callable[[Event, Recorder], None], event: Event) -> None:
        """Let one probe act; its failure is not that of the others."""
        try:
            act(event, self)
        except Exception as error:
            self.warn(event.about, f"{type(error).__name__}: {error}")

    def _finish(self) -> None:
        for thread in list(self._calls):
            self._guarded("exit", self._end, self._calls.pop(thread))


def _probes(options: dict[str, Any]) -> dict[str, list[Probe]]:
    """The probes that act at each phase."""
    result: dict[str, list[Probe]] = {"before": [], "after": []}
    for name in options["probes"]:
        probe: Probe = import_module(f".probes.{name}", __package__).PROBE()
        when = options["when"] or probe.when
        for phase, probes in result.items():
            if when in (phase, "both"):
                probes.append(probe)
    return result


def _without_modes() -> contextlib.AbstractContextManager[Any]:
    """Keep what probes do out of sight of the program's own `TorchDispatchMode`s."""
    if not torch._C._len_torch_dispatch_stack():
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _is_capturing(contents: tuple[Any, ...]) -> bool:
    """Inside a CUDA graph's capture a copy to the host is illegal."""
    on_cuda = any(isinstance(content, torch.Tensor) and content.is_cuda for content in contents)
    return on_cuda and torch.cuda.is_current_stream_capturing()


def _head(tensor: torch.Tensor) -> list[Any] | None:
    """The first values in logical order, read without copying the rest; `None` if unreadable."""
    if tensor.is_quantized or tensor.layout is not torch.strided or not has_memory(tensor):
        return None
    if tensor.numel() == 0:
        return []
    while tensor.dim() > 1 and tensor[0].numel() >= HEAD:
        tensor = tensor[0]
    if tensor.dim():
        tensor = tensor[: -(-HEAD // tensor[0].numel())].flatten()[:HEAD]
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)
    values = tensor.tolist()
    return values if isinstance(values, list) else [values]
