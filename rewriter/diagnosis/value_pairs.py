"""Finds pairs of rows in a recorded call that are of the same value, and so must be equal.

A value is recorded where it is written, and again where a launch reads it. The two make a pair if
no recorded launch in between writes to its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rewriter.core.types import Phase
from rewriter.diagnosis.evidence import located
from rewriter.dump import dataflow, saved
from rewriter.dump.documents import LaunchRow
from rewriter.dump.reading import RunDump, RunStep
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.locate.types import Launch

_MOST = 1 << 26  # elements that are compared
_ASSIGNMENT = re.compile(r"\s*(?:auto )?(\w+) = (?:std::move\()?(\w+)\)?(?:;|$)")


@dataclass(frozen=True)
class ValueRecord:
    """A row of a tensor, the step that it was recorded at, and the buffer that owned its memory."""

    step: RunStep
    row: TensorRow
    root: str


def pairs(run: RunDump) -> Iterator[tuple[ValueRecord, ValueRecord]]:
    """The pairs of a call, in the order of the second ones."""
    return _Tracker(run).pairs()


def same_bits(run: RunDump, a: TensorRow, b: TensorRow) -> bool | None:
    """Whether two rows are of the same bits; `None` where that cannot be told."""
    if a.digest and b.digest:
        return a.digest == b.digest
    if a.is_measured and b.is_measured and a.statistics != b.statistics:
        return False
    if not (a.file and b.file) or a.size > _MOST or not a.size:
        return None
    import torch

    x, y = (saved.load_row(run.path, row) for row in (a, b))
    if x is None or y is None:
        return None
    return torch.equal(*(one.contiguous().view(-1).view(torch.uint8) for one in (x, y)))


class _Tracker:
    """Goes through the steps of a call, and keeps the last recording of each variable."""

    def __init__(self, run: RunDump) -> None:
        self._run = run
        self._launches, _ = located(run)
        wrapper = wrapper_of(run)
        text = ("" if wrapper is None else wrapper.source.decode("utf-8", "replace")).split("\n")
        # Whose whole memory a variable took over: `buf5 = buf4; del buf4  # reuse`, `buf1 = buf0`.
        taken = (_ASSIGNMENT.match(line) for line in text)
        self._takes_over = {x[1]: x[2] for x in taken if x is not None and x[1] != x[2]}
        self._updates = [(at, x) for at, x in enumerate(text) if re.search(r"\w_\(", x)]
        # By scope, and the name under which the memory was allocated.
        self._last: dict[tuple[str, str], ValueRecord] = {}
        self._arriving: set[str] = set()  # arguments of collectives: their values arrive later

    def pairs(self) -> Iterator[tuple[ValueRecord, ValueRecord]]:
        for step in self._run.steps:
            facts = self._run.launch_row(step.launch)
            if facts.repeats:
                self._last.clear()  # in a loop, a name has another value each time
            else:
                yield from self._pairs_at(step, facts)

    def _pairs_at(
        self, step: RunStep, facts: LaunchRow
    ) -> Iterator[tuple[ValueRecord, ValueRecord]]:
        rows = dataflow.tensors(self._run.rows(step))
        if facts.kind == "collective":
            self._arriving.update(dataflow.variable(row.arg) for row in rows)
        scope = "" if step.launch is None else facts.scope
        views = _views(self._launches.get(step.launch), facts)
        roots = {row.arg: dataflow.buffer_of(facts, row.arg) for row in rows}
        writes = {roots[row.arg] for row in rows if row.role != "in"}
        before = {row.arg: row for row in rows if row.phase == "before"}
        for row in rows:
            name, root = row.arg, roots[row.arg]
            now = ValueRecord(step, row, root)
            is_read = row.phase == "after" and row.role == "in" and root not in writes
            is_known = root not in self._arriving
            if is_read and is_known and name in before and _alike(before[name], row):
                yield replace(now, row=before[name]), now
            # A view may show only a part of its variable; the rest matches whole variables.
            if (name, row.phase) in views:
                continue
            key = self._key(facts, name)
            last = self._last.get((scope, key)) or self._last.get(("", key))
            is_end = is_read and name not in before and facts.kind != "custom_op"
            if (
                (row.phase == "before" or is_end)
                and is_known
                and last is not None
                and _alike(last.row, row)
                and not self._is_updated(last.step, step, name)
            ):
                yield last, now
            if row.phase == "before" or step.launch is None:
                self._last[scope, key] = now
        shown = (x for x in rows if x.phase == "after" or (x.arg, x.phase) in views)
        written = {roots[row.arg] for row in shown if row.role != "in"}
        self._last = {  # without memory that was written, under whichever name
            (scope, name): last
            for (scope, name), last in self._last.items()
            if not {name, last.root, dataflow.buffer_of(facts, name)} & written
        }
        for row in rows:
            if row.phase == "after" and (row.arg, "after") not in views:
                record = ValueRecord(step, row, roots[row.arg])
                self._last[scope, self._key(facts, row.arg)] = record

    def _key(self, facts: LaunchRow, name: str) -> str:
        """The name under which the memory of a variable was allocated. A name without a buffer in
        the launch's row belongs to another function, and is left as it is."""
        seen = {name} if name in facts.buffers else set()
        while seen and (before := self._takes_over.get(name)) is not None and before not in seen:
            seen.add(before)
            name = before
        return name

    def _is_updated(self, before: RunStep, step: RunStep, name: str) -> bool:
        """Whether a statement in between that is not a launch updates a buffer: `buf0.zero_()`."""
        first = self._run.launch_row(before.launch).line
        last = self._run.launch_row(step.launch).line
        updates = re.compile(rf"\b{re.escape(name)}\b.*\w_\(|\w_\(.*\b{re.escape(name)}\b")
        return any(first <= at < last and updates.search(x) for at, x in self._updates)


def _views(launch: Launch | None, facts: LaunchRow) -> set[tuple[str, Phase]]:
    """The names, and phases, under which a launch is given views."""
    if launch is None:
        return set()
    found: set[tuple[str, Phase]] = set()
    given = {arg.name for arg in launch.args if not arg.is_whole}
    phases: tuple[Phase, Phase] = ("before", "after")
    for phase, labels in zip(phases, (facts.before, facts.after), strict=True):
        # A label without an expression means the whole variable, even if the launch gets a view.
        whole = {name for _, name, *expression in labels or () if not expression}
        found |= {(name, phase) for name in given - whole}
    return found


def _alike(a: TensorRow, b: TensorRow) -> bool:
    return (a.dtype, a.shape, a.stride) == (b.dtype, b.shape, b.stride)
