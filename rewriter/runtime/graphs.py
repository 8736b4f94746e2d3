"""The CUDA graphs that calls of one wrapper were captured into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from .capture import Capture, Rows
from .device import first_line
from .event import Event
from .running_call import RunningCall


class Graphs:
    """All captures of one wrapper, each with the call that it was made in.

    `most` is the number of values that the wrapper passes. `warn(about, message)` writes a warning.
    """

    def __init__(self, most: int, warn: Callable[[str, str], None]) -> None:
        self._rows = Rows(most)
        self._warn = warn
        self._captures: list[tuple[Capture, RunningCall]] = []

    def __len__(self) -> int:
        return len(self._captures)

    def start(self, device: torch.device) -> None:
        """Prepare measurements on a GPU for the captures that follow. Not during a capture."""
        self._rows.start(device)

    def reserve(self, device: torch.device) -> None:
        """Allocate rows for tensors that torch's operators will measure in a capture."""
        self._rows.reserve(device)

    def add(self, event: Event, call: RunningCall, *, measured: bool) -> None:
        """Add an event to the graph that its call is captured into, and drop its tensors."""
        if call.capture is None:
            call.capture = Capture(self._rows)
            self._captures.append((call.capture, call))
        call.capture.add(event, measured=measured)
        if call.capture.is_short:
            self._warn(
                event.about,
                "values of a CUDA graph are measured where the wrapper ran before it was captured",
            )

    def skip_replays(self) -> None:
        """Ignore the replays so far, so that they are not reported for the next call."""
        for capture, _ in self._captures:
            capture.read()

    def read(
        self, ended: Sequence[RunningCall], *, final: bool
    ) -> Iterator[tuple[Capture, RunningCall]]:
        """The captures to report, each with its call: those replayed since the last `read`.

        `ended` are the calls that are over. `final`, at the end of the program, adds captures that
        were never replayed, with a warning.
        """
        for capture, call in self._captures:
            try:
                replayed = capture.read()
            except Exception as error:
                self._warn("replay", f"{type(error).__name__}: {first_line(error)}")
                continue
            if not replayed and (capture.was_replayed or not final):
                continue
            if not ended and not call.is_wanted:
                continue
            if not replayed:
                self._warn("exit", "a CUDA graph was captured and never replayed: it has no values")
            yield capture, call
        if final:
            self._captures.clear()


def replaying_call(capture: Capture, ended: Sequence[RunningCall]) -> RunningCall | None:
    """The call whose directory gets the values of a replay: the one that captured the graph, or
    else the last one that ran none of its launches itself, and so replayed it.

    None if all of the wrapper is in the graph: then a replay does not call the wrapper.
    """
    for call in ended:
        if call.capture is capture:
            return call
    for call in reversed(ended):
        if not any(capture.launches & runs.keys() for runs in call.runs.values()):
            return call
    return None
