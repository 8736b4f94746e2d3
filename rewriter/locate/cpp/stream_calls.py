"""Reads the lines of a C++ wrapper that create streams, enter them, and make them wait.

AOTInductor of torch 2.15 writes a guard of the current stream, and calls of the CUDA runtime with
streams and events from caches (`_emit_stream_op_inline` in
torch/_inductor/codegen/cpp_wrapper_gpu.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import tree_sitter

from rewriter.locate.cpp.name_tracker import ClassifiedCall
from rewriter.locate.cpp.outline import CppOutline
from rewriter.locate.streams import DEFAULT, StreamTracker

_STREAMS = "_aoti_aux_stream_cache"
_NUMBERED = re.compile(rf"(?:{_STREAMS}|_aoti_event_cache)\.get\(\s*(\d{{1,6}})\b")
_GUARD = "_aoti_current_stream_guard"


class StreamCalls:
    """Tells a tracker what the calls of a body do. Needs them in file order."""

    def __init__(self, tracker: StreamTracker, outline: CppOutline) -> None:
        self.tracker = tracker
        self._outline = outline

    def read(self, calls: Iterable[ClassifiedCall], statement: tree_sitter.Node) -> None:
        """Read the calls of one statement."""
        for call in calls:
            if call.callee == f"{_GUARD}.reset":
                self.tracker.enter(DEFAULT, self._outline.line(call.node))
            elif call.callee == f"{_STREAMS}.get":
                if (name := _declared(self._outline.read(statement))) is not None:
                    self.tracker.variables[name] = self._stream(self._outline.read(call.node))
            elif call.effect == "device":
                self._read(call, statement)

    def launched_on(self, call: ClassifiedCall) -> str:
        """The stream of a launch: the one that it is passed, or else the current one."""
        if self.tracker.variables:
            for text in self._arguments(call):
                if text in self.tracker.variables or _NUMBERED.match(text):
                    return self._stream(text)
                if text == "stream":
                    return DEFAULT
        return self.tracker.current

    def _read(self, call: ClassifiedCall, statement: tree_sitter.Node) -> None:
        tracker, line = self.tracker, self._outline.line(call.node)
        given = self._arguments(call)
        if call.callee == "std::make_unique" and given:
            if _GUARD in self._outline.read(statement):
                tracker.enter(self._stream(given[0]), line)
        elif call.callee == "cudaEventRecord" and len(given) > 1:
            tracker.record(_event(given[0]), self._stream(given[1]), line)
        elif call.callee == "cudaStreamWaitEvent" and len(given) > 1:
            tracker.wait(self._stream(given[0]), _event(given[1]), line)
        elif call.callee == "cudaEventSynchronize" and given:
            tracker.synchronize(line, _event(given[0]))
        elif call.callee == "cudaStreamSynchronize" and given:
            tracker.synchronize_stream(self._stream(given[0]), line)
        elif call.callee in ("cudaDeviceSynchronize", "cuCtxSynchronize"):
            tracker.synchronize(line)

    def _arguments(self, call: ClassifiedCall) -> Sequence[str]:
        if call.arguments is None:
            return ()
        children = (
            named_child
            for named_child in call.arguments.named_children
            if named_child.type != "comment"
        )
        return [" ".join(self._outline.read(child).split()) for child in children]

    def _stream(self, text: str) -> str:
        if match := _NUMBERED.match(text):
            number = int(match[1])
            return f"stream{number}" if number else DEFAULT
        return self.tracker.variables.get(text, DEFAULT)


def _event(text: str) -> str:
    match = _NUMBERED.match(text)
    return match[1] if match else text


def _declared(statement: str) -> str | None:
    """`cudaStream_t stream1 = …`"""
    name, _, value = statement.partition("=")
    words = name.split()
    return words[-1].lstrip("*&") if value and words else None
