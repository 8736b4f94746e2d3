"""Collects the lines that instrumenting inserts into one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewriter.core import markers
from rewriter.core.edit import Insertion
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.core.types import Json, Phase
from rewriter.instrumentation import options_line
from rewriter.instrumentation.dialect import Dialect, expression
from rewriter.instrumentation.memory_waits import MemoryLine
from rewriter.instrumentation.options_line import OptionsRecord
from rewriter.instrumentation.types import INPUTS, LineKey, Selection
from rewriter.locate.types import Argument, EntryPoint, Launch, MemoryEvent
from rewriter.version import __version__

# The origins of the insertion in front of the first scope, and of the line that loads the recorder.
HEADER, LOADING = "header", "loading"


class _Line(NamedTuple):
    """An inserted line. It goes `behind` the statement that ends at its offset, or before the one
    that starts there."""

    insertion: Insertion
    behind: bool
    memory: MemoryLine | None


class Lines:
    """Collects lines for one file. They get a mark and the line ends of the file."""

    def __init__(self, source: Source, dialect: Dialect, *, is_dormant: bool) -> None:
        self._source = source
        self._dialect = dialect
        self.needs_releases = dialect.needs_releases
        self._mark = markers.Mark(markers.draw_tag(source.data), dialect.comment)
        self._header: tuple[Insertion, ...] = ()
        self._lines: list[_Line] = []
        name = "_rw"
        while name.encode() in source.data:
            name += "_"
        self._variable = name
        self._is_dormant = is_dormant
        self.passed: dict[LineKey, tuple[str, ...]] = {}

    def _add(
        self,
        offset: int,
        indent: bytes,
        line: str,
        origin: str,
        *,
        behind: bool = True,
        memory: MemoryLine | None = None,
    ) -> None:
        """Add a line at an offset, `behind` the statement that ends there or before the one that
        starts there. `memory` is set if it is a line for memory events."""
        self._require_line(offset)
        data = self._source.data
        at_end = offset == len(data) > 0 and not data.endswith((b"\n", b"\r"))
        text = self._mark.line(
            self._dialect.encode(indent.decode() + line),
            self._source.newline_at(offset),
            at_end=at_end,
        )
        self._lines.append(_Line(Insertion(offset, text, origin), behind, memory))

    def _require_line(self, offset: int) -> None:
        """Refuse an offset in the middle of a line."""
        line = self._source.line_of(offset)
        if offset not in (self._source.line_start(line), len(self._source.data)):
            raise RewriterError(
                "no-place",
                f"{self._source.name}:{line}: a probe needs a line of its own, "
                f"and this place is in the middle of one\n"
                f"    {self._source.line_text(line).strip()}",
                hint="Break the line there, or copy the wrapper again as Inductor wrote it.",
            )

    def begin(self, entry: EntryPoint, *, checks: bool) -> None:
        line = self._dialect.begin(self._variable, checks=checks, is_dormant=self._is_dormant)
        self._add(entry.start, entry.indent, line, "begin", behind=False)

    def inputs(self, entry: EntryPoint, names: Sequence[str], at: int) -> None:
        """The line that passes the inputs of an entry, at an offset where they have values."""
        line = self._call("inputs", *names, is_dormant=self._is_dormant)
        self._add(at, entry.indent, line, "inputs")
        self.passed[INPUTS] = tuple(names)

    def around(self, launch: Launch, phase: Phase, arguments: tuple[Argument, ...]) -> None:
        point, is_behind = launch.insertion_point, phase == "after"
        passed = tuple(expression(argument, phase) for argument in arguments)
        values = (self._dialect.value(self._variable, text) for text in passed)
        line = self._call(phase, launch.index, *values, is_dormant=self._is_dormant)
        origin = f"#{launch.index} {phase} {launch.kernel}"
        offset = point.end if is_behind else point.start
        self._add(offset, point.indent, line, origin, behind=is_behind)
        self.passed[launch.index, phase] = passed

    def _call(self, method: str, *values: object, is_dormant: bool = False) -> str:
        return self._dialect.call(self._variable, method, *values, is_dormant=is_dormant)

    def checked(self, launch: Launch) -> None:
        point = launch.insertion_point
        memory = MemoryLine(point.end, point.indent, launch=launch.index)
        origin = f"#{launch.index} memory {launch.kernel}"
        line = self._call("checked", launch.index)
        self._add(point.end, point.indent, line, origin, memory=memory)

    def memory(self, event: MemoryEvent) -> None:
        """The line of a memory event: before a release, after any other event."""
        point, behind = event.insertion_point, event.action != "release"
        if event.action == "allocate":
            line = self._dialect.allocated(self._variable, event)
        else:
            called = "reused" if event.action == "reuse" else "released"
            line = self._call(called, event.index, event.buffer)
        offset = point.end if behind else point.start
        memory = MemoryLine(offset, point.indent, event=event.index)
        origin = f"{event.action} {event.buffer}"
        self._add(offset, point.indent, line, origin, behind=behind, memory=memory)

    def header(
        self,
        offset: int,
        selection: Selection,
        record: OptionsRecord,
        options: Json,
        facts: Sequence[Json],
        inputs: Sequence[str],
    ) -> None:
        """The lines before the first scope: the runtime, and the table of the wrapper."""
        source, encode = self._source, self._dialect.encode
        self._require_line(offset)
        header = self._dialect.header(self._variable, options, facts, inputs)
        newline = source.newline_at(offset)
        first = markers.header_line(__version__, selection.probes, options["sha256"])
        text = self._mark.line(f"{self._dialect.comment} {first}", newline)
        second = f"{self._dialect.comment} {options_line.line(record, selection)}"
        text += self._mark.line(encode(second), newline)
        # Encoded as one text: encoding thousands of lines one by one is slow.
        header = encode("\n".join(header)).split("\n")
        if self._dialect.is_block:
            text += self._mark.block(header, newline)
        else:
            text += b"".join(self._mark.line(line, newline) for line in header)
        self._header = (Insertion(offset, text, HEADER),)
        if loading := self._dialect.loading:
            at, line = loading
            python = markers.Mark(self._mark.tag, "#").line(line, source.newline_at(at))
            self._header = (Insertion(at, python, LOADING), *self._header)

    def insertions(self) -> tuple[Insertion, ...]:
        """All lines in the order of the file."""
        return (*self._header, *(line.insertion for line in self._in_order()))

    def of_memory(self) -> tuple[MemoryLine, ...]:
        """The lines for memory events in the order of the file."""
        return tuple(line.memory for line in self._in_order() if line.memory is not None)

    def _in_order(self) -> list[_Line]:
        """By offset; at one offset, lines that go behind the previous statement come first."""
        return sorted(self._lines, key=lambda line: (line.insertion.offset, not line.behind))
