"""The CUDA graphs that calls of one wrapper were captured into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from .capture import Capture, Rows
from .device import first_line
from .event import Event
from .running_call import RunningCall


class Graphs:
    """Every capture, with the call that it was made in.

    `most` is how many values the wrapper has. `warn` takes what a message is about, and its text.
    """

    def __init__(self, most: int, warn: Callable[[str, str], None]) -> None:
        self._rows = Rows(most)
        self._warn = warn
        self._captures: list[tuple[Capture, RunningCall]] = []

    def __len__(self) -> int:
        return len(self._captures)

    def start(self, device: torch.device) -> None:
        """See to it that the next capture can measure on this GPU. Not while there is one."""
        self._rows.start(device)

    def reserve(self, device: torch.device) -> None:
        """The same for tensors that torch's operators measure."""
        self._rows.reserve(device)

    def add(self, event: Event, call: RunningCall, *, measured: bool) -> None:
        """Take an event into the graph that its call is captured into; its tensors are let go."""
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
        """Replays that were issued so far are not those of the calls that follow."""
        for capture, _ in self._captures:
            capture.read()

    def read(
        self, ended: Sequence[RunningCall], *, final: bool
    ) -> Iterator[tuple[Capture, RunningCall]]:
        """The captures to report, each with its call: what was replayed until these calls ended.

        `final`, at the end of the program, adds those that never were.
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
    """The call whose directory has the values of a replay: that captured it, or replayed it.

    `None` where all of the wrapper is in the graph: then a replay is no call.
    """
    for call in ended:
        if call.capture is capture:
            return call
    for call in reversed(ended):
        if not any(capture.launches & runs.keys() for runs in call.runs.values()):
            return call
    return None
