"""Compares two runs of the same calls that differ only in what unwritten memory is filled with.

A launch that has the same inputs and other outputs read uninitialised memory. What a
launch leaves unwritten keeps its filling, and that differs, too: so the launches where anything
differs are run once more with their values, and an element that still holds the filling of its run
was not written. Only an element that holds neither was computed from it. Where the call returns
what was not written, it is the caller who reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

from rewriter.core.text import counted
from rewriter.diagnosis.evidence import sources_of
from rewriter.diagnosis.fill_patterns import Filling
from rewriter.diagnosis.filled_values import ComparedValue, Pair, compare_rows
from rewriter.diagnosis.returned import outputs_of
from rewriter.dump import launched
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.reading import Dump, RunDump, RunStep, open_dump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of

_CHANCE = re.compile("atomic|rand|philox", re.IGNORECASE)
Place = tuple[str, int, int]  # the call, the launch, and which time it ran


@dataclass(frozen=True)
class Difference:
    """A launch whose outputs differ between the runs. `received` are the names of the inputs that
    differ, `written` of the outputs."""

    pair: Pair
    steps: tuple[RunStep, RunStep]
    received: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def place(self) -> Place:
        step = self.steps[0]
        assert step.launch is not None
        return self.pair.first.name, step.launch, step.iteration


@dataclass(frozen=True)
class LeftUnwritten:
    """A launch that wrote a result of the call, and left `count` of its elements as they were.
    `first` is one of them; no later launch writes them."""

    difference: Difference
    name: str
    filling: Filling
    count: int
    numel: int
    first: str


@dataclass(frozen=True)
class FillComparison:
    """`launches` were compared, of `calls`. `apart` tells which calls were not compared, and why:
    their inputs or their launches differ, and are compared up to these; `left` is the number of
    launches that were not."""

    differences: tuple[Difference, ...]
    launches: int
    calls: int
    apart: tuple[str, ...] = ()
    left: int = 0


@dataclass(frozen=True)
class UnwrittenRead:
    """A launch that computed from uninitialised memory. `count` elements of what it wrote
    differ, `element` is the first, in both runs.

    `given` says which of its arguments hold a filling, and how many elements do. Where no input
    does, these are results: it left elements unwritten, and may have read them back. Where no
    argument does, it read outside of all of them.
    """

    difference: Difference
    count: int
    numel: int
    element: str
    given: Mapping[str, tuple[Filling, int]] = field(default_factory=dict)


def compare_fills(first: Path, second: Path) -> FillComparison:
    """Compare what launches wrote in two runs, by fingerprints.

    Raises `RewriterError` where a dump is not as a runtime writes it.
    """
    differences: list[Difference] = []
    launches = calls = left = 0
    apart: dict[str, list[str]] = {}  # names of calls, by why they cannot be compared
    for pair in _paired(open_dump(first), open_dump(second)):
        left += sum(step.launch is not None for step in pair.first.steps)
        mine, theirs = ({x.arg: x for x in launched.tensors(run.inputs)} for run in pair)
        if names := [name for name, row in mine.items() if not _is_same(row, theirs.get(name))]:
            why = f"the two runs were given other inputs ({', '.join(names[:3])})"
            apart.setdefault(why, []).append(pair.first.name)
            continue
        calls += 1
        steps = zip(pair.first.steps, pair.second.steps, strict=False)
        same = list(takewhile(lambda both: both[0].which == both[1].which, steps))
        ran = [both for both in same if both[0].launch is not None]
        launches += len(ran)
        left -= len(ran)
        found = (_difference(pair, *both) for both in ran)
        differences += [difference for difference in found if difference is not None]
        if len(same) < max(len(run.steps) for run in pair):
            behind = "".join(f" behind launch #{step.launch}" for step, _ in ran[-1:])
            why = f"the two runs did not launch the same{behind}"
            apart.setdefault(why, []).append(pair.first.name)
    reasons = []
    for why, (name, *others) in apart.items():
        also = f" and {counted(len(others), 'other call')}" if others else ""
        reasons.append(f"{name}{also}: {why}")
    return FillComparison(tuple(differences), launches, calls, tuple(reasons), left)


def _is_same(one: TensorRow, other: TensorRow | None) -> bool:
    if other is None or one.digest == other.digest:
        return other is not None
    return _is_address(one) and _is_address(other)


def _is_address(row: TensorRow) -> bool:
    """Whether an input is a place in memory, which is another one in each run: vLLM gives an
    operator its weights so on a CPU."""
    is_number = row.dtype == "int64" and not row.shape
    return is_number and 1 << 40 <= (row.magnitude or 0) < 1 << 47


def varying(differences: Sequence[Difference], first: Path, again: Path) -> tuple[Difference, ...]:
    """Those of the launches that another run with the first filling does not repeat either, such as
    sums by atomic additions: they say nothing about what memory holds."""
    return tuple(x.difference for x in _again(differences, first, again) if _differing(x.rows))


def rounded(differences: Sequence[Difference], first: Path, second: Path) -> tuple[Difference, ...]:
    """Those of the launches, in two further runs which saved their values, that hold no filling and
    whose results differ by rounding alone: sums in another order, which two runs with the same
    filling may have repeated by chance. What is computed from a filling is NaN in one run."""
    return tuple(x.difference for x in _again(differences, first, second) if _is_rounded(x))


def _is_rounded(again: _Again) -> bool:
    known = [x for _, x in again.compared()]
    are_rounded = all(x.is_rounded and not x.filled for x in known)
    return len(known) == len(again.rows) and are_rounded and any(x.computed for x in known)


def unsteady(varying: Sequence[Difference], first: Path, second: Path) -> UnwrittenRead | None:
    """The first of the launches that no run repeats, if nothing in its kernel explains that: it was
    given the same, adds nothing in an order of chance, and draws no random numbers.

    The dumps are of two further runs, which saved the values of these launches.
    """
    if not varying or varying[0].received:
        return None  # later ones may follow from the first
    run, step = varying[0].pair.first, varying[0].steps[0]
    facts = run.launch_row(step.launch)
    text = sources_of(run).get(facts.kernel)
    if facts.kind != "custom_op" and (text is None or _CHANCE.search(text)):
        return None
    return next(map(_judged, _again(varying[:1], first, second)), None)


class _Again(NamedTuple):
    """A launch that differs, as it ran in two further runs: the rows of both, by their value."""

    difference: Difference
    pair: Pair
    rows: list[tuple[TensorRow, TensorRow]]

    def compared(self) -> Iterator[tuple[TensorRow, ComparedValue]]:
        """The rows that were saved in both runs, each with how the values differ."""
        for row, other in self.rows:
            if (found := compare_rows(self.pair, row, other)) is not None:
                yield row, found


def _again(differences: Sequence[Difference], first: Path, second: Path) -> Iterator[_Again]:
    """The launches in two further runs, as far as they ran there."""
    runs = {pair.first.name: pair for pair in _paired(open_dump(first), open_dump(second))}
    for difference in differences:
        run, *which = difference.place
        steps = [(side, step) for side in runs.get(run, ()) if (step := side.step(*which))]
        if len(steps) == 2:
            yield _Again(difference, runs[run], _same(*steps))


def _same(*steps: tuple[RunDump, RunStep]) -> list[tuple[TensorRow, TensorRow]]:
    """The rows of a launch in two runs that are of the same value."""
    mine, theirs = (launched.tensors(run.rows(step)) for run, step in steps)
    known = {(x.phase, x.arg): x for x in theirs[::-1]}
    return [(x, known[x.phase, x.arg]) for x in mine if (x.phase, x.arg) in known]


def _differing(rows: Sequence[tuple[TensorRow, TensorRow]]) -> list[TensorRow]:
    """What a launch read and wrote of which the fingerprints differ."""
    known = ((x, y) for x, y in rows if x.digest and y.digest)
    return [x for x, y in known if x.digest != y.digest and (x.phase == "before") != x.is_result]


def judge(
    differences: Sequence[Difference], first: Path, second: Path
) -> list[UnwrittenRead | LeftUnwritten]:
    """Of launches that differ, those that computed from uninitialised memory, and those that
    left some in what the call returns, in their order.

    The dumps are of two further runs, which saved the values of these launches. A launch that was
    given what another one computed from such memory only passes that on.
    """
    found: list[UnwrittenRead | LeftUnwritten] = []
    known: dict[Place | None, Difference] = {
        difference.place: difference for difference in differences
    }
    flows: dict[str, tuple[list[FlowNode], dict[int, set[str]]]] = {}  # by the call
    for again in _again(differences, first, second):
        one, run = again.difference, again.difference.pair.first
        if (read := _judged(again)) is not None:
            found.append(read)
            continue
        if run.name not in flows:
            nodes = flow_of(run).nodes
            flows[run.name] = nodes, _returned(run, nodes)
        nodes, returned = flows[run.name]
        at = one.steps[0].position
        for left in _left(again, returned.get(at, set())):
            place = _first_writer(run, nodes, at, left.name)
            if place in known:
                found.append(replace(left, difference=known[place]))
    order = {place: number for number, place in enumerate(known)}
    return sorted(found, key=lambda x: order[x.difference.place])


def _left(again: _Again, returned: set[str]) -> Iterator[LeftUnwritten]:
    """What is unwritten of the results of a launch that are `returned`, and no later launch writes:
    by this launch, or by one before that it updates in place."""
    known = list(again.compared())
    given = (compared for row, compared in known if row.phase == "before" and compared.computed)
    # What another launch computed from a filling may hold it, too: a copy of a running sum does.
    passed = {x for compared in given for x in compared.filled}
    for row, compared in known:
        if not row.is_result or row.arg not in returned or compared.left is None:
            continue
        filling, first = compared.left
        if filling not in passed:
            count = compared.filled[filling]
            yield LeftUnwritten(again.difference, row.arg, filling, count, row.size, first)


def _first_writer(
    run: RunDump, nodes: Sequence[FlowNode], position: int, name: str
) -> Place | None:
    """The launch that wrote a result before others updated it in place; `None` if each of them only
    updates it, such as an empty tensor that a model fills in part, or if several wrote parts."""
    while True:
        node = nodes[position]
        rows = launched.tensors(run.rows(node.step))
        roles = {row.role for row in rows if row.arg == name and row.phase == "after"}
        if node.step.launch is None:
            return None
        if roles == {"out"}:
            return run.name, node.step.launch, node.step.iteration
        origins = node.given.get(name, ())
        if len(origins) != 1:
            return None
        position, slot = origins[0].step, origins[0].slot
        name = next((x for x, number in nodes[position].slots.items() if number == slot), "")


def _returned(run: RunDump, nodes: Sequence[FlowNode]) -> dict[int, set[str]]:
    """By their steps, the results of launches that a call returns as these launches left them."""
    names: dict[int, set[str]] = {}
    for origin in chain.from_iterable(output.holds for output in outputs_of(run, nodes)):
        slots = nodes[origin.step].slots.items()
        names.setdefault(origin.step, set()).update(x for x, slot in slots if slot == origin.slot)
    return names


def _paired(a: Dump, b: Dump) -> Iterator[Pair]:
    """The same calls: of the same wrapper, by the same rank, in the order of its calls."""

    def keyed(dump: Dump) -> dict[tuple[object, ...], RunDump]:
        counts: Counter[tuple[object, ...]] = Counter()
        known: dict[tuple[object, ...], RunDump] = {}
        for run in dump.runs:
            which = (run.rank, run.sha256, run.facts.call, run.copy)
            counts[which] += 1
            known[(*which, counts[which])] = run
        return known

    others = keyed(b)
    for key, run in keyed(a).items():
        if key in others:
            yield Pair(run, others[key])


def _difference(pair: Pair, one: RunStep, other: RunStep) -> Difference | None:
    differing = _differing(_same((pair.first, one), (pair.second, other)))
    received, written = (
        tuple(dict.fromkeys(row.arg for row in differing if row.phase == phase))
        for phase in ("before", "after")
    )
    return Difference(pair, (one, other), received, written) if written else None


def _judged(again: _Again) -> UnwrittenRead | None:
    given: dict[str, tuple[Filling, int]] = {}
    own: dict[str, tuple[Filling, int]] = {}  # results that it may have read back
    count = numel = 0
    element = ""
    for row, compared in again.compared():
        if row.phase == "before":
            if compared.computed:
                return None  # it passes on what another launch computed
            for filling, elements in compared.filled.items():
                given[row.arg] = (filling, elements)
        elif row.is_result:
            count += compared.computed
            numel += max(row.size, compared.computed)
            element = element or compared.element
            for filling, elements in compared.filled.items():
                if filling != "bounds":
                    own[row.arg] = (filling, elements)
    if not element:
        return None
    return UnwrittenRead(again.difference, count, numel, element, given or own)


def launches_of(differences: Sequence[Difference]) -> tuple[list[range], str]:
    """The launches and the calls of these, as a selection takes them."""
    launches = sorted({difference.place[1] for difference in differences})
    calls = sorted({difference.pair.first.call_index or 0 for difference in differences})
    return [range(n, n + 1) for n in launches], ",".join(map(str, calls))
