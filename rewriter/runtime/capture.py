"""Statistics of values inside a CUDA graph: the graph itself computes them at each replay.

A replay runs no host code, and during capture nothing can be read. So the engine's measuring kernel
is captured along with the model's kernels, and writes its results into host memory, which is read
after a replay. Without the engine, reductions by torch's operators are captured instead, and their
results are copied into rows of device memory that this module allocated.

These rows must not lie in the graph's own memory pool: torch checks that nothing stays alive there.
The pool of an allocation depends on the thread and its stream, so a separate thread allocates the
rows. It does so before the capture, because an allocation in any thread may end a capture; a
wrapper runs at least once before it is captured.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import torch
from torch import Tensor

from . import engine
from .device import synchronize
from .event import Event, Pending, fetch_statistics
from .statistics import WIDTH, Record, has_memory, measure


class Rows:
    """Rows for the statistics of one wrapper, outside of every graph's memory pool; never freed.

    `most` is the number of values that the wrapper passes, and so of rows per capture.
    """

    def __init__(self, most: int) -> None:
        self._most = most + 1  # one of them counts replays
        self._free: dict[torch.device, list[Tensor]] = {}
        self._started: set[torch.device] = set()

    def has_engine(self, device: torch.device) -> bool:
        """Whether the engine was started on the device: it cannot be started during a capture."""
        return device in self._started

    def start(self, device: torch.device) -> None:
        """Prepare for captures on a device: start the engine, or else allocate rows.

        Must not be called during a capture.
        """
        if device in self._started:
            return
        if engine.start(device.index):
            self.reserve(device)
        else:
            self._started.add(device)

    def reserve(self, device: torch.device) -> None:
        """Allocate rows for measurements by torch's operators, if there are too few on a device.

        The stream that this needs costs device memory.
        """
        free = self._free.setdefault(device, [])
        if len(free) < self._most:
            free += _allocate(self._most, device).unbind()

    def take(self, device: torch.device) -> Tensor | None:
        """A row of zeros; None if none is left, as when a wrapper is captured in its first call."""
        if device.type != "cuda":
            self.reserve(device)
        free = self._free.get(device)
        return free.pop() if free else None


class Capture:
    """The events that were captured into one CUDA graph, in order.

    `is_short`: there were not enough rows, so some values are not measured.
    """

    def __init__(self, rows: Rows) -> None:
        self.events: list[Pending] = []
        self._measured: list[tuple[Event, list[int], engine.Capture]] = []
        self.is_short = False
        self._rows = rows
        self._devices: set[torch.device] = set()
        self._replays: Tensor | None = None
        self._seen = 0

    @property
    def launches(self) -> set[int]:
        """The indices of the launches that were captured."""
        return {event.launch.index for event, _ in self.events if event.launch}

    def add(self, event: Event, *, measured: bool) -> None:
        """Add an event, capture its measurement if it is `measured`, and drop its tensors."""
        event.captured = True
        records: list[Record | None] = [None] * len(event.tensors)
        if measured:
            by_engine = self._measured_by_engine(event)
            for place, value in enumerate(event.tensors):
                if place not in by_engine:
                    records[place] = self._keep(value.content)
        for value in event.values:
            value.content = None
        self.events.append((event, records))

    def read(self) -> bool:
        """Wait for the devices, and put the statistics of the last replay into the events.

        Returns false if the graph was not replayed since the last `read`.
        """
        for device in self._devices:
            synchronize(device)
        replays = int(self._replays) if self._replays is not None else 0
        found = [(event, places, *capture.read()) for event, places, capture in self._measured]
        replays = max([replays, *(count for _, _, count, _ in found)])
        if replays == self._seen:
            return False
        self._seen = replays
        fetch_statistics(self.events)
        for event, places, _, measurements in found:
            tensors = event.tensors
            for place, measurement in zip(places, measurements, strict=False):
                tensors[place].statistics = measurement.statistics
        return True

    @property
    def was_replayed(self) -> bool:
        """Whether `read` ever found a replay."""
        return self._seen > 0

    def _measured_by_engine(self, event: Event) -> list[int]:
        """Capture the engine's measurement of an event. Returns the places of measured tensors."""
        tensors: list[Tensor] = [value.content for value in event.tensors]
        places = [
            place
            for place, tensor in enumerate(tensors)
            if tensor.layout is torch.strided
            and has_memory(tensor)
            and self._rows.has_engine(tensor.device)
        ]
        devices = {tensors[place].device for place in places}
        if len(devices) != 1 or (capture := engine.capture([tensors[x] for x in places])) is None:
            return []
        self._devices |= devices
        self._measured.append((event, places, capture))
        return places

    def _keep(self, tensor: Tensor) -> Record | None:
        record = measure(tensor)
        if record is None:
            return None
        row = self._row(record.values.device)
        if row is None:
            return None
        row.copy_(record.values)
        return replace(record, values=row)

    def _row(self, device: torch.device) -> Tensor | None:
        if self._replays is None and (counter := self._rows.take(device)) is not None:
            self._replays = counter[0]
            self._replays.add_(1)
        row = self._rows.take(device)
        self.is_short = self.is_short or row is None
        self._devices.add(device)
        return row


def _allocate(count: int, device: torch.device) -> Tensor:
    """Allocate `count` rows of zeros outside of every graph's memory pool."""
    made: list[Tensor] = []

    def make() -> None:
        with torch.no_grad():
            if device.type != "cuda":
                made.append(torch.zeros(count, WIDTH, dtype=torch.int64, device=device))
                return
            # torch returns the streams of a fixed pool in turn: this one might be the caller's.
            for _ in range(64):
                stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                if stream != caller:
                    with torch.cuda.stream(stream):
                        made.append(torch.zeros(count, WIDTH, dtype=torch.int64, device=device))
                    stream.synchronize()
                    return

    caller = torch.cuda.current_stream(device) if device.type == "cuda" else None
    thread = threading.Thread(target=make, name="rewriter-rows")
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError("there is no memory for what a CUDA graph measures")
    return made[0]
