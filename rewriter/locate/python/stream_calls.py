"""Reads the lines of a Python wrapper that create streams, enter them, and make them wait.

`with stream1:` around `torch.ops.streams.record_event.default(2, 0)` and the like, as
torch/_inductor/codegen/wrapper.py and torch/_dynamo/variables/streams.py write them, and calls that
people write: `event.record(stream1)`, `stream1.wait_stream(stream2)`.
"""

from __future__ import annotations

from functools import lru_cache

import libcst as cst

from rewriter.locate.python.statements import Statement, head, positional
from rewriter.locate.streams import DEFAULT, StreamTracker

_OPERATORS = "torch.ops.streams."
_BY_NUMBER = ("_get_stream_by_index", "get_external_object_by_index")
_CURRENT = (".current_stream", ".default_stream")


class StreamCalls:
    """Tells a tracker what the calls of a scope do. Needs them in file order."""

    def __init__(self, tracker: StreamTracker) -> None:
        self.tracker = tracker

    def enter(self, statement: Statement, context: cst.BaseExpression) -> None:
        """Enter the stream of `with context:`, if it is one."""
        if isinstance(context, cst.Call) and statement.callee(context).endswith(".stream"):
            context = (*positional(context), context)[0]
        if (stream := self._stream(statement, context)) is not None:
            self.tracker.enter(stream, statement.line.number)

    def launched_on(self, statement: Statement, call: cst.Call) -> str:
        """The stream of a launch: that of the handle that it is passed, or else the current one."""
        if self.tracker.variables:
            for value in _handles(call):
                if (stream := self._stream(statement, value)) is not None:
                    return stream
        return self.tracker.current

    def read(self, statement: Statement, path: str, call: cst.Call, target: str) -> None:
        """Read a call of the group `device`; `target` is the variable that gets its result."""
        tracker, line = self.tracker, statement.line.number
        name = path.rpartition(".")[2]
        arguments = positional(call)
        given = arguments[0] if arguments else None
        if path.startswith(_OPERATORS):
            operator = path.removeprefix(_OPERATORS).partition(".")[0]
            self._operator(operator, list(map(statement.integer, arguments)), line)
        elif path in _BY_NUMBER:
            self._make_numbered(target, statement.integer(given))
        elif path.endswith(_CURRENT):
            tracker.variables[target] = tracker.current if name == "current_stream" else DEFAULT
        elif path.endswith("get_raw_stream"):
            tracker.variables[target] = tracker.current
        elif name == "Stream" and target:
            tracker.variables[target] = target
        elif name == "synchronize" and path.startswith(("torch.cuda.", "torch.accelerator.")):
            tracker.synchronize(line)
        else:
            self._method(statement, path, given)

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

    def _method(self, statement: Statement, path: str, given: cst.BaseExpression | None) -> None:
        """Read a call of a method of an event or a stream."""
        tracker, line = self.tracker, statement.line.number
        receiver, _, name = path.rpartition(".")
        named = statement.name(given)
        stream = tracker.current if "current_stream()" in receiver else tracker.of(receiver)
        if stream is not None:
            other = None if given is None else self._stream(statement, given)
            if name == "wait_stream" and other is not None:
                tracker.wait_stream(stream, other, line)
            elif name == "wait_event" and named:
                tracker.wait(stream, named, line)
            elif name == "record_event" and named:
                tracker.record(named, stream, line)
            elif name == "synchronize":
                tracker.synchronize_stream(stream, line)
        elif receiver and receiver == head(path):
            on = tracker.current if given is None else self._stream(statement, given)
            if name == "record" and on is not None:
                tracker.record(receiver, on, line)
            elif name == "wait" and on is not None:
                tracker.wait(on, receiver, line)
            elif name == "synchronize":
                tracker.synchronize(line, receiver)

    def _stream(self, statement: Statement, expression: cst.BaseExpression) -> str | None:
        match expression:
            case cst.Name():
                return self.tracker.of(statement.name(expression))
            case cst.Call(args=args):
                path = statement.callee(expression)
                if path in _BY_NUMBER and args:
                    number = statement.integer(args[0].value)
                    return None if number is None else self.tracker.number(number)
                if path.endswith(_CURRENT):
                    return self.tracker.current if path.endswith("current_stream") else DEFAULT
        return None


@lru_cache(maxsize=1 << 12)
def _handles(call: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """What may be the handle of a stream among the arguments of a launch, likeliest first."""
    named = (arg.value for arg in call.args if arg.keyword and arg.keyword.value == "stream")
    return tuple(map(_converted, (*named, *positional(call)[1:])))


def _converted(node: cst.BaseExpression) -> cst.BaseExpression:
    """What `c_void_p` is given."""
    match node:
        case cst.Call(func=cst.Name(value="c_void_p"), args=[given, *_]):
            return given.value
    return node
