"""Reads the lines of a Python wrapper that create streams, enter them, and make them wait.

`with stream1:` around `torch.ops.streams.record_event.default(2, 0)` and the like, as
torch/_inductor/codegen/wrapper.py and torch/_dynamo/variables/streams.py write them, and calls that
people write: `event.record(stream1)`, `stream1.wait_stream(stream2)`.
"""

from __future__ import annotations

import ast

from rewriter.locate.python.outline import callee, head
from rewriter.locate.streams import DEFAULT, StreamTracker

_OPERATORS = "torch.ops.streams."
_BY_NUMBER = ("_get_stream_by_index", "get_external_object_by_index")
_CURRENT = (".current_stream", ".default_stream")


class StreamCalls:
    """Tells a tracker what the calls of a scope do. Needs them in file order."""

    def __init__(self, tracker: StreamTracker) -> None:
        self.tracker = tracker

    def context(self, expression: ast.expr) -> str | None:
        """The stream that `with expression:` enters, if it enters one."""
        if isinstance(expression, ast.Call) and callee(expression).endswith(".stream"):
            expression = expression.args[0] if expression.args else expression
        return self._stream(expression)

    def launched_on(self, call: ast.Call) -> str:
        """The stream of a launch: that of the handle that it is passed, or else the current one."""
        if self.tracker.variables:
            for value in (*(k.value for k in call.keywords if k.arg == "stream"), *call.args[1:]):
                if isinstance(value, ast.Call) and callee(value) == "c_void_p" and value.args:
                    value = value.args[0]
                if (stream := self._stream(value)) is not None:
                    return stream
        return self.tracker.current

    def read(self, path: str, call: ast.Call, target: str) -> None:
        """Read a call of the group `device`; `target` is the variable that gets its result."""
        tracker, line = self.tracker, call.lineno
        name = path.rpartition(".")[2]
        if path.startswith(_OPERATORS):
            operator = path.removeprefix(_OPERATORS).partition(".")[0]
            self._operator(operator, [_integer(one) for one in call.args], line)
        elif path in _BY_NUMBER:
            self._make_numbered(target, _integer(call.args[0]) if call.args else None)
        elif path.endswith(_CURRENT):
            tracker.variables[target] = tracker.current if name == "current_stream" else DEFAULT
        elif path.endswith("get_raw_stream"):
            tracker.variables[target] = tracker.current
        elif name == "Stream" and target:
            tracker.variables[target] = target
        elif name == "synchronize" and path.startswith(("torch.cuda.", "torch.accelerator.")):
            tracker.synchronize(line)
        else:
            self._method(path, call)

    def _operator(self, operator: str, numbers: list[int | None], line: int) -> None:
        tracker = self.tracker
        first, second = (*numbers, None, None)[:2]
        if operator == "record_event" and second is not None:
            tracker.record(str(first), tracker.number(second), line)
        elif operator in ("wait_event", "sync_dealloc") and second is not None:
            tracker.wait(tracker.number(second), str(first), line)
        elif operator == "synchronize_event":
            tracker.synchronize(line, str(first))
        elif operator == "synchronize_stream" and first is not None:
            tracker.synchronize_stream(tracker.number(first), line)
        elif operator == "synchronize_device":
            tracker.synchronize(line)
        elif operator == "wait_stream" and first is not None and second is not None:
            tracker.wait_stream(tracker.number(first), tracker.number(second), line)
        elif operator in ("fork", "join") and second is not None:
            tracker.enter(tracker.number(second), line)

    def _make_numbered(self, target: str, number: int | None) -> None:
        if number is not None and target:
            stream = self.tracker.numbers.setdefault(number, target)
            self.tracker.variables[target] = stream

    def _method(self, path: str, call: ast.Call) -> None:
        """Read a call of a method of an event or a stream."""
        tracker, line = self.tracker, call.lineno
        receiver, _, name = path.rpartition(".")
        stream = tracker.current if "current_stream()" in receiver else tracker.of(receiver)
        given = call.args[0] if call.args else None
        if stream is not None:
            other = None if given is None else self._stream(given)
            if name == "wait_stream" and other is not None:
                tracker.wait_stream(stream, other, line)
            elif name == "wait_event" and isinstance(given, ast.Name):
                tracker.wait(stream, given.id, line)
            elif name == "record_event" and isinstance(given, ast.Name):
                tracker.record(given.id, stream, line)
            elif name == "synchronize":
                tracker.synchronize_stream(stream, line)
        elif receiver and receiver == head(path):
            on = tracker.current if given is None else self._stream(given)
            if name == "record" and on is not None:
                tracker.record(receiver, on, line)
            elif name == "wait" and on is not None:
                tracker.wait(on, receiver, line)
            elif name == "synchronize":
                tracker.synchronize(line, receiver)

    def _stream(self, expression: ast.expr) -> str | None:
        if isinstance(expression, ast.Name):
            return self.tracker.of(expression.id)
        if isinstance(expression, ast.Call):
            path = callee(expression)
            if path in _BY_NUMBER and expression.args:
                number = _integer(expression.args[0])
                return None if number is None else self.tracker.number(number)
            if path.endswith(_CURRENT):
                return self.tracker.current if path.endswith("current_stream") else DEFAULT
        return None


def _integer(node: ast.expr) -> int | None:
    is_integer = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if is_integer else None  # type: ignore[attr-defined]
