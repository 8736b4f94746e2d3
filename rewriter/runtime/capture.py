"""Statistics of what runs inside a CUDA graph: the graph itself computes them at each replay.

A replay runs no host code, and while a graph is captured nothing can be read. So the reductions are
captured with the model's kernels and copied into rows of our own, which are read later.

Nothing of ours may stay alive in the graph's own memory pool: torch checks that. Which pool an
allocation comes from depends on the thread and its stream, so the rows are made in another thread.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import torch
from torch import Tensor

from .device import synchronize
from .event import Event
from .statistics import Record, collect, measure

_ROWS = 1024  # of seven int64 each, made at once


class Capture:
    """What one recording of a graph measures, in order. Its rows live as long as the process."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, list[Record | None]]] = []
        self._free: dict[torch.device, list[Tensor]] = {}
        self._replays: Tensor | None = None
        self._seen = 0

    @property
    def launches(self) -> set[int]:
        return {event.launch.index for event, _ in self.events if event.launch}

    def add(self, event: Event, *, measured: bool) -> None:
        """Take an event; its tensors are let go."""
        event.captured = True
        records = [self._keep(value.content) if measured else None for value in event.tensors]
        for value in event.values:
            value.content = None
        self.events.append((event, records))

    def read(self) -> bool:
        """Wait for the replays that were issued; false if there was none since the last time.

        The statistics of the last one are in the events then.
        """
        for device in self._free:
            if device.type != "cpu":
                synchronize(device)
        replays = int(self._replays) if self._replays is not None else 0
        if replays == self._seen:
            return False
        self._seen = replays
        found = iter(collect([record for _, records in self.events for record in records]))
        for event, _ in self.events:
            for value in event.tensors:
                value.statistics = next(found)
        return True

    @property
    def was_replayed(self) -> bool:
        return self._seen > 0

    def _keep(self, tensor: Tensor) -> Record | None:
        record = measure(tensor)
        if record is None:
            return None
        if self._replays is None:
            self._replays = self._row(record.values.device)[0]
            self._replays.add_(1)
        row = self._row(record.values.device)
        row.copy_(record.values)
        return replace(record, values=row)

    def _row(self, device: torch.device) -> Tensor:
        free = self._free.setdefault(device, [])
        if not free:
            free += _allocate(device).unbind()[::-1]
        return free.pop()


def _allocate(device: torch.device) -> Tensor:
    """Rows of zeros outside of every graph's pool; their memory is never handed back."""
    made: list[Tensor] = []

    def make() -> None:
        with torch.no_grad():
            if device.type != "cuda":
                made.append(torch.zeros(_ROWS, 7, dtype=torch.int64, device=device))
                return
            # Streams are lent in turn: this one might be one that is captured, or the caller's.
            for _ in range(64):
                stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                with torch.cuda.stream(stream):
                    if stream != caller and not torch.cuda.is_current_stream_capturing():
                        made.append(torch.zeros(_ROWS, 7, dtype=torch.int64, device=device))
                        return

    caller = torch.cuda.current_stream(device) if device.type == "cuda" else None
    thread = threading.Thread(target=make, name="rewriter-rows")
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError("no memory could be had outside of the graph that is captured")
    return made[0]
