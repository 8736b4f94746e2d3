"""The object that `rewriter.probing` yields: the dump of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rewriter.core import terminal
from rewriter.core.dtypes import short_dtype
from rewriter.core.labels import short
from rewriter.core.text import counted, figure
from rewriter.dump.reading import Dump, RunDump, RunStep, is_recorded, open_dump
from rewriter.dump.rows import EventRow, ScalarRow, TensorRow, ValueRow
from rewriter.execution.loaded.block import Block
from rewriter.execution.loaded.temporary import TemporaryDump
from rewriter.runtime import extension

_MOST = 60  # rows of a table that are shown
_HEAD = (
    *("wrapper", "call", "#", "kernel", "phase", "value", "type"),
    *("min", "max", "mean", "std", "nan", "inf"),
)
_DIGITS = 12  # of a fingerprint that are shown


@dataclass(frozen=True)
class LaunchRecord:
    """A launch as it ran in one call, or the inputs of that call, which have no `launch`.

    `rows` are its events: one for each phase and argument.
    """

    run: RunDump = field(repr=False)
    step: RunStep

    @property
    def wrapper(self) -> str:
        """The file name of the wrapper."""
        return self.run.artifact

    @property
    def call(self) -> int | None:
        """The number of the call of the wrapper, counted from 0 in the block."""
        return self.run.call_index

    @property
    def launch(self) -> int | None:
        return self.step.launch

    @property
    def kernel(self) -> str:
        return self.step.kernel

    @property
    def rows(self) -> list[EventRow]:
        return self.run.rows(self.step)


class ProbedCalls:
    """The dump of a block: iterate over its rows, or over `launches`, and print it for a table.

    It can be read at any time; what has ended by then is in it. A temporary dump goes with the
    object, or with `remove()`; `rewriter report PATH` and every other command read `path` before.
    """

    def __init__(self, block: Block, temporary: TemporaryDump | None = None) -> None:
        self._block = block
        self._temporary = temporary

    @property
    def path(self) -> Path:
        """The directory of the dump."""
        return self._block.directory

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not probed, and why."""
        return self._block.notes

    @property
    def calls(self) -> dict[str, int]:
        """How many calls of each wrapper were probed, by its file name."""
        return {Path(path).name: number for path, number in sorted(self._block.calls.items())}

    @property
    def runs(self) -> Sequence[RunDump]:
        """The calls, in the order in which they began."""
        return () if (dump := self._dump()) is None else dump.runs

    @property
    def launches(self) -> list[LaunchRecord]:
        """Every launch as it ran, call by call, the inputs of each call first."""
        return [LaunchRecord(run, step) for run in self.runs for step in run.steps]

    def __iter__(self) -> Iterator[EventRow]:
        """Yield every row of every call, as in `events.jsonl`."""
        for run in self.runs:
            yield from run.events()

    def remove(self) -> None:
        """Remove a temporary dump now. One in a directory that the user chose stays."""
        if self._temporary is not None:
            self._temporary.remove()

    def __repr__(self) -> str:
        return "\n".join([self._title(), *self._table(), *(f"note: {x}" for x in self.notes)])

    def _dump(self) -> Dump | None:
        extension.finish_writing()
        return open_dump(self.path) if is_recorded(self.path) else None

    def _title(self) -> str:
        calls = self.calls
        return (
            f"{counted(sum(calls.values()), 'call')} of {counted(len(calls), 'wrapper')}: "
            f"{self.path}"
        )

    def _table(self) -> Iterator[str]:
        """The rows of the dump, as many as are shown."""
        events = ((run, row) for run in self.runs for row in run.events())
        shown = list(islice(events, _MOST + 1))
        hashed = any(isinstance(row, TensorRow) and row.fingerprint for _, row in shown)
        head = [*_HEAD, "fingerprint"] if hashed else list(_HEAD)
        rows = [_cells(run, row, len(head)) for run, row in shown[:_MOST]]
        if rows:
            yield from map(terminal.plain, terminal.table([head, *rows]))
        if len(shown) > _MOST:
            yield "…"


def _cells(run: RunDump, row: EventRow, columns: int) -> list[str]:
    launch, iteration = row.which
    index = "" if launch is None else f"{launch}.{iteration}" if iteration else f"{launch}"
    call = "" if run.call_index is None else str(run.call_index)
    cells = [short(run.artifact), call, index, row.kernel, row.phase]
    cells.append(f"{row.role} {row.arg}" if isinstance(row, ValueRow) else "")
    if isinstance(row, TensorRow):
        cells.append(short_dtype(row.dtype) + str(list(row.shape)))
        cells += map(figure, row.statistics.values()) if row.is_measured else [""] * 6
        cells.append(row.fingerprint[:_DIGITS])
    elif isinstance(row, ScalarRow):
        cells.append(str(row.value or ""))
    return [*cells, *[""] * columns][:columns]
