"""Times launches: on a GPU by two CUDA events on the stream, elsewhere by the host's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall


@dataclass
class _Clocks:
    """The clocks of one call."""

    started: int | None = None  # when the current launch was issued: `perf_counter_ns`
    mark: Any = None  # the CUDA event before the current launch, if it runs on a GPU
    # For each device the first CUDA event of the call, and when it was issued, in microseconds from
    # the start of the call: CUDA events give only differences, and only on one device.
    zeros: dict[Any, tuple[Any, float]] = field(default_factory=dict)


class TimeProbe(Probe):
    summary = "measure how long each launch runs: CUDA events on a GPU, the clock elsewhere"
    spans = True

    def start(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        clocks = call.states.setdefault(self, _Clocks())
        clocks.started = clocks.mark = None
        if recorder.is_capturing():
            recorder.warn(
                event.about, "launches cannot be timed while a CUDA graph is being captured"
            )
            return
        if recorder.runs_on_gpu(event):
            clocks.mark = _mark()
        clocks.started = perf_counter_ns()

    def stop(self, event: Event, call: RunningCall, recorder: ProbeRecorder) -> None:
        now = perf_counter_ns()
        clocks = call.states.setdefault(self, _Clocks())
        started, clocks.started = clocks.started, None
        if started is None:
            return
        issued = (started - call.started) / 1000
        if (mark := clocks.mark) is None:
            _report(event, call, recorder, issued, (now - started) / 1000, "host")
            return
        stopped = _mark()
        zero, since = clocks.zeros.setdefault(mark.device, (mark, issued))

        def read() -> None:
            stopped.synchronize()
            start = since + zero.elapsed_time(mark) * 1000
            _report(event, call, recorder, start, mark.elapsed_time(stopped) * 1000, "cuda")

        recorder.later(event, call, read)


def _mark() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _report(
    event: Event,
    call: RunningCall,
    recorder: ProbeRecorder,
    start: float,
    duration: float,
    clock: str,
) -> None:
    start, duration = round(start, 3), round(duration, 3)
    call.note(event, {"time": {"start_us": start, "duration_us": duration, "clock": clock}})
    recorder.write([f"{recorder.about(event)}  {duration:.1f} us\n"])


PROBE = TimeProbe
