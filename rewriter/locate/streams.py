"""Tracks the streams of a scope: on which one work runs, and what makes one wait for another.

Language-neutral: `python/stream_calls.py` and `cpp/stream_calls.py` read the calls.
"""

from __future__ import annotations

from rewriter.locate.types import StreamAction, StreamActionKind

DEFAULT = ""  # the stream that the wrapper is called on


class StreamTracker:
    """The streams at one point of a walk through a scope that begins at `line`.

    `current` is the stream that work goes to, `actions` what happened so far, `variables` the
    streams that variables hold, also as handles.
    """

    def __init__(self, line: int) -> None:
        self.current = DEFAULT
        self.variables: dict[str, str] = {}
        self.numbers: dict[int, str] = {}
        self.actions: list[StreamAction] = []
        self._begin = line

    def of(self, name: str) -> str | None:
        """The stream that a variable holds; `None` if it holds no known stream."""
        return self.variables.get(name)

    def number(self, number: int) -> str:
        """The stream with a number: a side stream has a name, any other is the stream that the
        wrapper is called on."""
        return self.numbers.get(number, DEFAULT)

    def enter(self, stream: str, line: int) -> None:
        if stream != self.current:
            self.current = stream
            self._add("enter", line, stream)

    def record(self, event: str, stream: str, line: int) -> None:
        self._add("record", line, stream, event)

    def wait(self, stream: str, event: str, line: int) -> None:
        self._add("wait", line, stream, event)

    def wait_stream(self, stream: str, other: str, line: int) -> None:
        """`stream` waits for all work that `other` was given so far."""
        event = f"line {line}"
        self.record(event, other, line)
        self.wait(stream, event, line)

    def synchronize(self, line: int, event: str = "") -> None:
        """The host waits for an event, or for all work."""
        self._add("synchronize", line, event=event)

    def synchronize_stream(self, stream: str, line: int) -> None:
        event = f"line {line}"
        self.record(event, stream, line)
        self.synchronize(line, event)

    def end(self, line: int) -> tuple[StreamAction, ...]:
        """End the scope, and return the actions in it."""
        if self.actions:
            self._add("end", line)
        return tuple(self.actions)

    def _add(self, kind: StreamActionKind, line: int, stream: str = "", event: str = "") -> None:
        if not self.actions:
            self.actions.append(StreamAction("begin", self._begin))
        self.actions.append(StreamAction(kind, line, stream, event))
