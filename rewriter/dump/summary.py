"""Summarizes the dump of a program: which wrappers were called, and where the first NaN is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Literal

from rewriter.core.documents import Count
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.dump import dataflow, infinities, launched
from rewriter.dump.allowed import Allowed
from rewriter.dump.reading import RunDump, RunStep, is_recorded, open_dump
from rewriter.dump.rows import EventRow, InputRow, TensorRow
from rewriter.dump.uninitialised import defined_rows

Kind = Literal["nan", "inf", "unexpected"]
_KINDS: tuple[Kind, ...] = ("nan", "inf", "unexpected")
_Flow = Callable[[], dataflow.Flow]  # of a run, made when it is needed, and once


@printed("kind artifact run event=row")
@dataclass(frozen=True)
class Anomaly:
    """The row of the first value with a NaN, or with an infinity that a launch computed and nothing
    absorbed, or of the first input that is not what its wrapper expects."""

    kind: Kind
    artifact: str
    run: str
    row: InputRow = field(repr=False)


@dataclass(frozen=True)
class DumpSummary:
    """`calls` counts the calls of each wrapper, by its file name; `launches` are those recorded."""

    calls: Mapping[str, int] = field(default_factory=dict)
    launches: Count = 0
    findings: tuple[Anomaly, ...] = ()


def summarise(dump: Path) -> DumpSummary:
    """Read a dump once, in the order in which the calls began."""
    if not is_recorded(dump):
        return DumpSummary()
    calls: Counter[str] = Counter()
    first: dict[Kind, Anomaly] = {}
    launches = 0
    recorded = open_dump(dump)
    for run in sorted(recorded.runs, key=lambda run: (run.number, run.rank)):
        calls[run.artifact] += 1
        flow, has_infinities = cache(partial(dataflow.Flow, run)), False
        for step, rows in _sound(run):
            launches += step.launch is not None
            for kind, row in _anomalies(step, rows, recorded.allowed):
                if kind not in first and not _is_uninitialised(flow, step, row):
                    first[kind] = Anomaly(kind, run.artifact, run.name, row)
            has_infinities |= any(isinstance(row, TensorRow) and row.inf for row in rows)
        if has_infinities and "inf" not in first:
            for infinite in _infinities(flow, len(run.steps), recorded.allowed):
                first.setdefault("inf", Anomaly("inf", run.artifact, run.name, infinite))
    return DumpSummary(calls, launches, tuple(first[kind] for kind in _KINDS if kind in first))


def _anomalies(
    step: RunStep, rows: Sequence[EventRow], allowed: Allowed
) -> Iterator[tuple[Kind, InputRow]]:
    """The anomalies in the rows of one step."""
    kernel = "" if step.launch is None else step.kernel
    for row in rows:
        if isinstance(row, TensorRow) and row.nan and not allowed.covers(kernel, row.arg):
            yield "nan", row
        if isinstance(row, InputRow) and row.unexpected:
            yield "unexpected", row


def _is_uninitialised(flow: _Flow, step: RunStep, row: InputRow) -> bool:
    """Whether the NaN of a value stand for uninitialised memory."""
    if not isinstance(row, TensorRow) or not row.nan:
        return False
    with suppress(RewriterError):
        rows = launched.tensors(defined_rows(flow(), flow().nodes[step.position]))
        return not any(x.nan for x in rows if (x.arg, x.phase) == (row.arg, row.phase))
    return False


def _infinities(flow_of_run: _Flow, steps: int, allowed: Allowed) -> Iterator[TensorRow]:
    """The first infinities that a launch computed and nothing absorbed, or that became NaN."""
    with suppress(RewriterError):
        flow = flow_of_run()
        nan = next((x for x in flow.nodes[:steps] if _writes_nan(flow, x)), None)
        found = [] if nan is None else list(infinities.makers(flow, nan))
        found += infinities.remaining(flow, steps, allowed)
        for node in sorted(found, key=lambda node: node.step.position)[:1]:
            yield infinities.held(flow, node)[0]


def _writes_nan(flow: dataflow.Flow, node: dataflow.FlowNode) -> bool:
    return any(row.nan for row in launched.tensors(launched.results(flow.rows(node))))


def _sound(run: RunDump) -> Iterator[tuple[RunStep, list[EventRow]]]:
    """Yield every step up to the first line that is not as a runtime writes it."""
    with suppress(RewriterError):
        yield from run.walk()
