"""Which call of which wrapper a run of a dump is, in words, and what the calls before it had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewriter.dump import dataflow
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import TensorRow

_LOOKED_AT = 8  # calls before one
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def ordinal(number: int) -> str:
    """Such as `1st`, `12th`, `23rd`."""
    suffix = "th" if number % 100 in (11, 12, 13) else _SUFFIXES.get(number % 10, "th")
    return f"{number:,}{suffix}"


@dataclass(frozen=True)
class Earlier:
    """A value as an earlier call had it: `call` counts from 1, `row` is that of the dump."""

    call: int
    row: TensorRow


class CallHistory:
    """The calls of a dump, those of one wrapper in one process together, in order."""

    def __init__(self, dump: Dump) -> None:
        self._of: dict[tuple[object, ...], list[RunDump]] = defaultdict(list)
        for run in dump.runs:
            self._of[_which(run)].append(run)

    def number(self, run: RunDump) -> int:
        """Which call of the wrapper it is, from 1."""
        # Where only some calls are recorded, the record says which.
        if isinstance(run.facts.call, int):
            return run.facts.call + 1
        return self._of[_which(run)].index(run) + 1

    def words(self, run: RunDump) -> str:
        """Such as `4th call of the forward graph`."""
        from rewriter.execution.dumped_wrappers import wrapper_of

        wrapper = wrapper_of(run)
        # Of a model that was compiled ahead of time there is one graph.
        named = wrapper is not None and wrapper.is_module
        graph = f"{wrapper.graph} graph" if wrapper is not None and named else "wrapper"
        return f"{ordinal(self.number(run))} call of the {graph}"

    def before(self, run: RunDump) -> Sequence[RunDump]:
        """The calls of the same wrapper before this one, the last few of those recorded."""
        calls = self._of[_which(run)]
        at = calls.index(run)
        return calls[max(0, at - _LOOKED_AT) : at]

    def follows(self, run: RunDump) -> bool:
        """Whether the call right before this one was recorded, if there was one."""
        before = self.before(run)
        return self.number(run) - 1 == (self.number(before[-1]) if before else 0)

    def history(
        self, run: RunDump, launch: int | None, iteration: int
    ) -> dict[str, tuple[Earlier, ...]]:
        """What a launch was given in the calls before, by the argument's name, oldest first."""
        given: dict[str, list[Earlier]] = defaultdict(list)
        for earlier in self.before(run):
            number = self.number(earlier)
            for row in _given(earlier, launch, iteration):
                given[row.arg].append(Earlier(number, row))
        return {name: tuple(rows) for name, rows in given.items()}


def _which(run: RunDump) -> tuple[object, ...]:
    return run.rank, run.facts.pid, run.artifact, run.sha256, run.copy


def _given(run: RunDump, launch: int | None, iteration: int) -> Iterator[TensorRow]:
    for step in run.steps:
        if (step.launch, step.iteration) == (launch, iteration):
            if launch is None:
                given = dataflow.results(run.rows(step))
            else:
                flow = dataflow.Flow(run)
                given = dataflow.reads(flow.rows(flow.nodes[step.position]))
            yield from (row for row in dataflow.tensors(given) if row.is_measured)
            return
