"""Summarizes the dump of a program: which wrappers were called, and an input that does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.core.documents import Count
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.dump.reading import RunDump, RunStep, is_recorded, open_dump
from rewriter.dump.rows import EventRow, InputRow


@printed("artifact run event=row")
@dataclass(frozen=True)
class UnexpectedInput:
    """The row of an input that is not what its wrapper expects."""

    artifact: str
    run: str
    row: InputRow = field(repr=False)


@dataclass(frozen=True)
class DumpSummary:
    """`calls` counts the calls of each wrapper, by its file name; `launches` are those recorded.
    `unexpected` is the first input that is not what its wrapper expects."""

    calls: Mapping[str, int] = field(default_factory=dict)
    launches: Count = 0
    unexpected: UnexpectedInput | None = None


def summarise(dump: Path) -> DumpSummary:
    """Read a dump once, in the order in which the calls began."""
    if not is_recorded(dump):
        return DumpSummary()
    calls: Counter[str] = Counter()
    launches, unexpected = 0, None
    for run in sorted(open_dump(dump).runs, key=lambda run: (run.number, run.rank)):
        calls[run.artifact] += 1
        for step, rows in _sound(run):
            launches += step.launch is not None
            found = (x for x in rows if isinstance(x, InputRow) and x.unexpected)
            if unexpected is None and (row := next(found, None)) is not None:
                unexpected = UnexpectedInput(run.artifact, run.name, row)
    return DumpSummary(calls, launches, unexpected)


def _sound(run: RunDump) -> Iterator[tuple[RunStep, Sequence[EventRow]]]:
    """Yield every step up to the first line that is not as a runtime writes it."""
    with suppress(RewriterError):
        yield from run.walk()
