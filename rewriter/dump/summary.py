"""What the dump of a program says: which wrappers were called, and where the first NaN is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rewriter.core.errors import RewriterError
from rewriter.dump import dataflow
from rewriter.dump.reading import InputRow, RunDump, RunStep, is_recorded, open_dump
from rewriter.dump.rows import EventRow, TensorRow

Kind = Literal["nan", "inf", "unexpected"]
_KINDS: tuple[Kind, ...] = ("nan", "inf", "unexpected")
_INPUTS = "inputs"  # where the inputs of a call are, which is no scope


@dataclass(frozen=True)
class Anomaly:
    """The first value that holds a NaN, or an infinity that a launch computed, or the first input
    that is not what its wrapper expects: the row of its event."""

    kind: Kind
    artifact: str
    run: str
    row: InputRow = field(repr=False)


@dataclass(frozen=True)
class DumpSummary:
    """`calls` counts the calls of each wrapper, by its file name; `launches` are those recorded."""

    calls: Mapping[str, int] = field(default_factory=dict)
    launches: int = 0
    findings: tuple[Anomaly, ...] = ()


def summarise(dump: Path) -> DumpSummary:
    """Go through a dump once, in the order in which the calls began."""
    if not is_recorded(dump):
        return DumpSummary()
    calls: Counter[str] = Counter()
    first: dict[Kind, Anomaly] = {}
    launches = 0
    for run in sorted(open_dump(dump).runs, key=lambda run: (run.number, run.rank)):
        calls[run.artifact] += 1
        floating = _Floating(run)
        for step, rows in _sound(run):
            launches += step.launch is not None
            computes = floating.computes(step, rows)
            for kind, row in _anomalies(rows, computes=computes):
                first.setdefault(kind, Anomaly(kind, run.artifact, run.name, row))
    return DumpSummary(calls, launches, tuple(first[kind] for kind in _KINDS if kind in first))


class _Floating:
    """Which memory of one call holds numbers that may be infinite, as far as it was recorded."""

    def __init__(self, run: RunDump) -> None:
        self._run = run
        self._memory: set[tuple[str, str]] = set()

    def computes(self, step: RunStep, rows: Sequence[EventRow]) -> bool:
        """As `dataflow.computes`, also where what a launch was given was recorded when it was made,
        and not once more where it is read."""
        facts = self._run.launch_row(step.launch)

        def place(name: str, scope: str) -> tuple[str, str]:
            name = dataflow.variable(name)
            return scope, facts.buffers.get(name, name)

        found = dataflow.computes(rows) or any(
            place(name, scope) in self._memory
            for _, name, *_ in facts.reads
            for scope in (facts.scope, _INPUTS)
        )
        scope = _INPUTS if step.launch is None else facts.scope
        made = (row for row in dataflow.tensors(dataflow.results(rows)) if row.is_floating)
        self._memory.update(place(row.arg, scope) for row in made)
        return found


def _anomalies(rows: Sequence[EventRow], *, computes: bool) -> Iterator[tuple[Kind, InputRow]]:
    """What the rows of one step show. Masks are made of infinities, and come in as inputs."""
    for row in rows:
        if isinstance(row, TensorRow):
            if row.nan:
                yield "nan", row
            if row.inf and row.is_result and computes:
                yield "inf", row
        if isinstance(row, InputRow) and row.unexpected:
            yield "unexpected", row


def _sound(run: RunDump) -> Iterator[tuple[RunStep, list[EventRow]]]:
    """Every step, up to the first line that is not as a runtime writes it."""
    with suppress(RewriterError):
        yield from run.walk()
