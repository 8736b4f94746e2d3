"""Finds values that change between launches, though no launch should have written to them.

Each value is recorded where it is written, and again where it is read: by each launch, or with
`--args ends` after the last one. The two make a pair if no recorded launch in between writes to its
memory. If they differ, something else wrote to that: a launch out of bounds, the owner of memory
that was freed or reused too early, or a kernel that was still running.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rewriter.core.text import counted
from rewriter.core.types import Phase
from rewriter.diagnosis.evidence import finding_at, located
from rewriter.diagnosis.findings import Certainty, Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict_text import statistics
from rewriter.dump import launched, saved
from rewriter.dump.documents import LaunchRow
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of, is_whole, wrapper_of
from rewriter.locate.types import Launch

_MOST_FINDINGS = 8  # of a call
_NAMED = 6  # launches
_ASSIGNMENT = re.compile(r"\s*(?:auto )?(\w+) = (?:std::move\()?(\w+)\)?(?:;|$)")


@dataclass(frozen=True)
class Changed:
    """A value that changed though no launch should have written it, as recorded `before` and
    `after`. `between` are the launches that may have changed it; with `--args ends`, they include
    the launch after which it was recorded again."""

    run: RunDump
    before: ValueRecord
    after: ValueRecord
    between: tuple[RunStep, ...]

    @classmethod
    def of(cls, run: RunDump, before: ValueRecord, after: ValueRecord) -> Changed:
        if before.step is after.step:
            return cls(run, before, after, (after.step,))
        end = after.step.position + (after.row.phase == "after")
        steps = run.steps[before.step.position + 1 : end]
        return cls(run, before, after, tuple(x for x in steps if x.launch is not None))

    @property
    def name(self) -> str:
        """The variable that had the value."""
        return self.after.row.arg

    @property
    def is_open(self) -> bool:
        """Whether a run that records the value after each launch would narrow it down."""
        return self.after.row.phase == "after" and len(self.between) > 1


def changed_values(dump: Dump) -> tuple[list[Changed], int]:
    """The values that changed, and how many were compared."""
    changed: list[Changed] = []
    compared = 0
    for run in filter(is_whole, dump.runs):
        found: dict[str, Changed] = {}
        for before, after in pairs(run):
            same = saved.same_bits(run.path, before.row, after.row)
            compared += same is not None
            if same is False:
                found.setdefault(after.row.arg, Changed.of(run, before, after))
                if after.row.phase == "before" or len(found) == _MOST_FINDINGS:
                    break  # later differences may follow from this one
        changed += found.values()
    return changed, compared


def examine_corruption(dump: Dump, watched: Dump | None = None) -> Examined:
    """Findings for launches that received another value than was written. `watched` is the dump of
    another run, in which the values that changed were recorded after each launch."""
    changed, compared = changed_values(dump)
    others = () if watched is None else changed_values(watched)[0]
    again = {(value.run.name, value.name): value for value in others}
    findings = tuple(_finding(again.get((value.run.name, value.name), value)) for value in changed)
    ruled_out = ""
    if compared and not findings:
        verb = "was received as it had" if compared == 1 else "were received as they had"
        what = f"{counted(compared, 'value')} {verb} been written"
        ruled_out = f"values that change between launches: {what}"
    return Examined(findings, ruled_out)


def _finding(one: Changed) -> Finding:
    """What may have changed a value, and how certain that is."""
    run, before, after, name = one.run, one.before, one.after, one.name
    step, phase = after.step, after.row.phase
    first = "the inputs" if before.step.launch is None else f"#{before.step.launch}"
    only = one.between[0] if len(one.between) == 1 else None
    certainty: Certainty = "likely"
    index = None if only is None else only.launch
    launch = located(run)[0].get(index)
    memory = {name, launched.buffer_of(run.launch_row(index), name)}
    if launch is not None and any({x.name, x.buffer} & memory for x in launch.args):
        certainty = "shown"
        what = f"changes {name}, which it is only given to read"
    elif only is step:
        what = f"changes {name}, which it is not given"
    elif only is not None:
        what = (
            f"changes {name}, which it is not given: what launch {step} {step.kernel} receives "
            f"is not what {first} left there"
        )
    elif phase == "after":
        what = (
            f"reads {name}, which is not what {first} left there: it, or a launch in between, "
            "changed it, and none was to write it"
        )
    else:
        certainty = "shown"
        what = (
            f"receives {name} otherwise than {first} left it, and no launch in between was "
            "given that memory"
        )
    had = {"inputs": "left", "before": "received", "after": "left"}
    sides = ((first, before.row), (step, after.row))
    text = [f"{name} as {who} {had[row.phase]} it: {statistics(row)}" for who, row in sides]
    others: tuple[RunStep, ...] = ()
    if before.step is not step:
        others = one.between[:_NAMED]
        names = ", ".join(f"#{x.launch} {x.kernel}" for x in others)
        text.append(f"launches in between: {names or 'none'}")
    shown = "shown by the values that were recorded on both sides"
    indices = tuple(x.launch for x in others if x.launch is not None)
    at = only or step
    return finding_at(
        run, at, "corrupted", what, shown, certainty, text=tuple(text), others=indices
    )


@dataclass(frozen=True)
class ValueRecord:
    """A row of a tensor, the step that it was recorded at, and the buffer that owned its memory."""

    step: RunStep
    row: TensorRow
    root: str


def pairs(run: RunDump) -> Iterator[tuple[ValueRecord, ValueRecord]]:
    """The pairs of a call, in the order of the second ones."""
    return _Tracker(run).pairs()


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
        self._unrecorded = flow_of(run).unrecorded
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
        rows = launched.tensors(self._run.rows(step))
        if facts.kind == "collective":
            self._arriving.update(launched.variable(row.arg) for row in rows)
        scope = "" if step.launch is None else facts.scope
        views = _views(self._launches.get(step.launch), facts)
        roots = {row.arg: launched.buffer_of(facts, row.arg) for row in rows}
        writes = {roots[row.arg] for row in rows if row.role != "in"}
        before = {row.arg: row for row in rows if row.phase == "before"}
        for row in rows:
            name, root = row.arg, roots[row.arg]
            now = ValueRecord(step, row, root)
            is_read = row.phase == "after" and row.role == "in" and root not in writes
            is_known = root not in self._arriving and root not in self._unrecorded
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
            if not {name, last.root, launched.buffer_of(facts, name)} & written
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
