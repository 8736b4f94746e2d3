"""Measures launches: on a GPU between two events on the stream, elsewhere by the clock."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import Probe

if TYPE_CHECKING:
    from ..event import Event
    from ..recorder import Recorder


class Time(Probe):
    summary = "measure how long each launch runs: CUDA events on a GPU, the clock elsewhere"
    spans = True

    def __init__(self) -> None:
        self._started: dict[int, Any] = {}  # by thread

    def start(self, event: Event, recorder: Recorder) -> None:
        thread = threading.get_ident()
        self._started.pop(thread, None)
        if recorder.is_capturing():
            recorder.warn(
                event.about, "launches cannot be timed while a CUDA graph is being captured"
            )
        elif recorder.runs_on_gpu(event):
            self._started[thread] = (_mark(), perf_counter_ns())
        else:
            self._started[thread] = perf_counter_ns()

    def stop(self, event: Event, recorder: Recorder) -> None:
        now = perf_counter_ns()
        started = self._started.pop(threading.get_ident(), None)
        call = event.call
        if started is None:
            return
        if isinstance(started, int):
            start = (started - call.started) / 1000
            _report(event, recorder, start, (now - started) / 1000, "host")
            return
        stopped = _mark()
        mark, issued = started
        # Events tell only how far apart they are, and only on one device.
        first = (mark, (issued - call.started) / 1000)
        zero, since = call.zeros.setdefault(mark.device, first)

        def read() -> None:
            stopped.synchronize()
            start = since + zero.elapsed_time(mark) * 1000
            _report(event, recorder, start, mark.elapsed_time(stopped) * 1000, "cuda")

        recorder.later(event, read)


def _mark() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _report(event: Event, recorder: Recorder, start: float, duration: float, clock: str) -> None:
    start, duration = round(start, 3), round(duration, 3)
    recorder.note(event, {"time": {"start_us": start, "duration_us": duration, "clock": clock}})
    recorder.write([f"{recorder.about(event)}  {duration:.1f} us\n"])


PROBE = Time
