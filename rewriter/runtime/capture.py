"""Statistics of what runs inside a CUDA graph: the graph itself computes them at each replay.

A replay runs no host code, and while a graph is captured nothing can be read. So the kernel of the
engine is captured with those of the model, and writes into rows of its own in host memory, which
are read later. Without an engine, reductions by torch's operators are, and copied into our rows.

Nothing of ours may stay alive in the graph's own memory pool: torch checks that. Which pool an
allocation comes from depends on the thread and its stream, so the rows are made in another thread;
and because an allocation in any thread may end a capture, they are made before there is one: a
wrapper is run at least once before it is captured.
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
    """Memory for the statistics of one wrapper, outside of every graph's pool; never freed.

    `most` is how many values the wrapper has, and so how many rows a capture may need.
    """

    def __init__(self, most: int) -> None:
        self._most = most + 1  # one of them counts replays
        self._free: dict[torch.device, list[Tensor]] = {}
        self._started: set[torch.device] = set()

    def has_engine(self, device: torch.device) -> bool:
        """Whether the engine can be captured there: it cannot be started within a capture."""
        return device in self._started

    def start(self, device: torch.device) -> None:
        """See to it that the next capture can measure on this device. Not while there is one."""
        if device in self._started:
            return
        if engine.start(device.index):
            self.reserve(device)
        else:
            self._started.add(device)

    def reserve(self, device: torch.device) -> None:
        """The same for what torch's operators measure. The stream that it takes costs memory."""
        free = self._free.setdefault(device, [])
        if len(free) < self._most:
            free += _allocate(self._most, device).unbind()

    def take(self, device: torch.device) -> Tensor | None:
        """A row of zeros; none are left where a wrapper is captured that never ran before."""
        if device.type != "cuda":
            self.reserve(device)
        free = self._free.get(device)
        return free.pop() if free else None


class Capture:
    """What one recording of a graph measures, in order.

    `is_short` tells that there were not enough rows, so that some values are not measured.
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
        return {event.launch.index for event, _ in self.events if event.launch}

    def add(self, event: Event, *, measured: bool) -> None:
        """Take an event; its tensors are let go."""
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
        """Wait for the replays that were issued; false if there was none since the last time.

        The statistics of the last one are in the events then.
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
        return self._seen > 0

    def _measured_by_engine(self, event: Event) -> list[int]:
        """Have the engine measure what it can of an event: the places of those tensors."""
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
    """Rows of zeros outside of every graph's pool."""
    made: list[Tensor] = []

    def make() -> None:
        with torch.no_grad():
            if device.type != "cuda":
                made.append(torch.zeros(count, WIDTH, dtype=torch.int64, device=device))
                return
            # Streams are lent in turn: this one might be the caller's.
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
