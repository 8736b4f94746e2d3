"""A launch as it ran: what is known about it, and the rows of what it read and wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.core.documents import Count
from rewriter.core.printed import printed
from rewriter.core.types import Role
from rewriter.dump.documents import LaunchRow
from rewriter.dump.names import SourceLine
from rewriter.dump.reading import RunDump, RunStep, label
from rewriter.dump.rows import EventRow, TensorRow, ValueRow
from rewriter.locate.types import Argument, Launch

OUTPUTS = "outputs"  # the kernel of the step that stands for the outputs of a call
_MEMBER = re.compile(r"\[\d+\]|\.\d+$")  # a member of a list; another view of the same tensor


@printed("step launch iteration kernel kind scope line source_nodes origins lines computes")
@dataclass(frozen=True)
class RecordedLaunch:
    """A launch as it ran in one of the dumps. `step` is its position in the run, from 0.

    `launch` is its index in the wrapper. It is `None` for the inputs of the call, which are the
    first step, and for its outputs, the last one; `kernel` is then empty, or `OUTPUTS`. `lines` are
    the lines of the model that it computes, `computes` the nodes of Inductor's graph.
    """

    run: str
    step: Count
    launch: Count | None
    iteration: Count
    kernel: str
    kind: str
    scope: str
    line: Count
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    lines: tuple[SourceLine, ...] = ()
    computes: tuple[str, ...] = ()

    @property
    def is_inputs(self) -> bool:
        return self.launch is None and self.kernel != OUTPUTS

    def __str__(self) -> str:
        if self.launch is None:
            return self.kernel or "inputs"
        return f"{label(self.launch, self.iteration)} {self.kernel}"

    @property
    def with_line(self) -> str:
        """With its line in the wrapper, such as `#2 cpp_fused_log_0 (line 30)`."""
        return f"{self} (line {self.line})" if self.line else str(self)


def recorded(run: RunDump, step: RunStep) -> RecordedLaunch:
    """A step of a run, with the facts about it in the table of launches."""
    facts = run.launch_row(step.launch)
    index = -1 if step.launch is None else step.launch
    return RecordedLaunch(
        run.name,
        step.position,
        step.launch,
        step.iteration,
        step.kernel,
        facts.kind,
        facts.scope,
        facts.line,
        facts.source_nodes,
        facts.origins,
        run.names.lines.get(index, ()),
        run.names.computes.get(index, ()),
    )


def reads(rows: Sequence[EventRow]) -> list[ValueRow]:
    """The rows of a launch's inputs: from before it, or from after it if only that was recorded.

    The value of an input that the launch updates is only known from before.
    """
    before = [row for row in values(rows) if row.phase == "before"]
    names = {row.arg for row in before}
    return before + [row for row in _after(rows) if row.role == "in" and row.arg not in names]


def given(rows: Sequence[EventRow]) -> list[TensorRow]:
    """The rows of a launch's input tensors, including those whose value is then unknown: tensors
    that it updates, if nothing was recorded before it."""
    known = tensors(reads(rows))
    names = {row.arg for row in known}
    return known + [
        row for row in tensors(_after(rows)) if row.role == "inout" and row.arg not in names
    ]


def results(rows: Sequence[EventRow]) -> list[ValueRow]:
    """The rows of a launch's results; the inputs of a call are the results of its first step."""
    if rows and rows[0].phase == "inputs":
        return values(rows)
    return [row for row in _after(rows) if row.role != "in"]


def unknown_results(
    launch: Launch, facts: LaunchRow, rows: Sequence[EventRow]
) -> tuple[Argument, ...]:
    """What a launch may have written, by its text, and of which its rows have no result."""
    known = {buffer_of(facts, row.arg) for row in tensors(results(rows))}
    # The roles of an operator of a user are known when it runs.
    read = {row.arg for row in tensors(rows) if row.role == "in"}
    return tuple(x for x in launch.may_write if x.buffer not in known and x.name not in read)


def unread(facts: LaunchRow, read: Sequence[ValueRow]) -> tuple[tuple[str, Role], ...]:
    """The input tensors of a launch, by its row in the table, that have no rows there."""
    names = {row.arg for row in read}
    return tuple(
        (name, "inout" if role == "inout" else "in")
        for role, name, *_ in facts.reads
        if name not in names
    )


def computes(rows: Sequence[EventRow]) -> bool:
    """Whether a launch reads or updates numbers that may be infinite.

    A launch that reads none writes constants. Infinities in these are not a fault: masks have them.
    """
    return any(row.is_floating for row in given(rows))


def _after(rows: Sequence[EventRow]) -> list[ValueRow]:
    return [row for row in values(rows) if row.phase == "after"]


def values(rows: Sequence[EventRow]) -> list[ValueRow]:
    return [row for row in rows if isinstance(row, ValueRow)]


def tensors(rows: Sequence[EventRow]) -> list[TensorRow]:
    return [row for row in rows if isinstance(row, TensorRow)]


def empty_variables(run: RunDump) -> set[str]:
    """The variables of a wrapper that held tensors without elements in a call."""
    rows = (row for step in run.steps for row in tensors(run.rows(step)))
    return {variable(row.arg) for row in rows if not row.size}


def variable(name: str) -> str:
    """The variable behind a name in the dump: `buf5` for `buf5.2`, `buf7` for `buf7[0]`."""
    return _MEMBER.sub("", name)


def buffer_of(facts: LaunchRow, name: str) -> str:
    """The buffer that owns the memory of a launch's value, by the names in its row."""
    return facts.buffers.get(name) or facts.buffers.get(variable(name), variable(name))
