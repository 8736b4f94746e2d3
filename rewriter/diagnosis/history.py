"""Names the calls of a dump, such as "4th call of the forward graph", and finds earlier values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rewriter.diagnosis.verdict_values import Earlier
from rewriter.dump import launched
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of

_LOOKED_AT = 8  # earlier calls
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def ordinal(number: int) -> str:
    """Such as `1st`, `12th`, `23rd`."""
    suffix = "th" if number % 100 in (11, 12, 13) else _SUFFIXES.get(number % 10, "th")
    return f"{number:,}{suffix}"


class CallHistory:
    """The calls of a dump, in order, by wrapper and process."""

    def __init__(self, dump: Dump) -> None:
        self._of: dict[tuple[object, ...], list[RunDump]] = defaultdict(list)
        for run in dump.runs:
            self._of[_which(run)].append(run)

    def number(self, run: RunDump) -> int:
        """The number of a call of its wrapper, from 1."""
        # The row has it if only some calls were recorded.
        return run.call or self._of[_which(run)].index(run) + 1

    def words(self, run: RunDump) -> str:
        """Such as `4th call of the forward graph`."""
        wrapper = wrapper_of(run)
        # A model that was compiled ahead of time has only one graph.
        graph = f"{wrapper.graph} graph" if wrapper is not None and wrapper.is_module else "wrapper"
        return f"{ordinal(self.number(run))} call of the {graph}"

    def before(self, run: RunDump) -> Sequence[RunDump]:
        """The last few recorded calls of the same wrapper before this one."""
        calls = self._of[_which(run)]
        at = calls.index(run)
        return calls[max(0, at - _LOOKED_AT) : at]

    def last(self, run: RunDump) -> RunDump:
        """The last recorded call of the same wrapper."""
        return self._of[_which(run)][-1]

    def follows(self, run: RunDump) -> bool:
        """Whether the call right before this one was recorded, or there was none."""
        before = self.before(run)
        return self.number(run) - 1 == (self.number(before[-1]) if before else 0)

    def history(
        self, run: RunDump, launch: int | None, iteration: int
    ) -> dict[str, tuple[Earlier, ...]]:
        """The inputs of a launch in earlier calls, by argument, oldest first."""
        given: dict[str, list[Earlier]] = defaultdict(list)
        for earlier in self.before(run):
            number = self.number(earlier)
            for row in _given(earlier, launch, iteration):
                given[row.arg].append(Earlier(number, row))
        return {name: tuple(rows) for name, rows in given.items()}


def _which(run: RunDump) -> tuple[object, ...]:
    return run.rank, run.facts.pid, run.artifact, run.sha256, run.copy


def _given(run: RunDump, launch: int | None, iteration: int) -> Iterator[TensorRow]:
    if (step := run.step(launch, iteration)) is None:
        return
    given = launched.results(run.rows(step))
    if launch is not None:
        flow = flow_of(run)
        given = launched.reads(flow.rows(flow.nodes[step.position]))
    yield from (row for row in launched.tensors(given) if row.is_measured)
