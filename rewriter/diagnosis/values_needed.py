"""Decides which calls and launches to record with all values, by a first dump without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rewriter.core.dtypes import element_size
from rewriter.diagnosis.verdict import NonFiniteVerdict
from rewriter.dump import launched
from rewriter.dump.reading import open_dump

_MOST = 3  # calls of a wrapper: its first and its second one, and the last
_FACTOR = 4  # inputs are saved before and after a launch, and results as well


def calls(dump: Path, limit: int, nonfinite: Sequence[NonFiniteVerdict] = ()) -> str:
    """The calls to record, as `--calls` takes them: the one with the first NaN, or else the first
    calls that fit into `limit` bytes, and the last one; and those with NaN that are absorbed.

    `nonfinite` are the verdicts about NaN in this dump.
    """
    with_nan = {verdict.run for verdict in nonfinite if not verdict.absorbed}
    absorbed = {verdict.run for verdict in nonfinite[:_MOST] if verdict.absorbed}
    also: set[int] = set()
    runs = sorted(open_dump(dump).runs, key=lambda run: (run.number, run.rank))
    numbers: dict[tuple[object, ...], list[int]] = defaultdict(list)
    size = 0
    for run in runs:
        number = run.call_index or 0
        which = (run.rank, run.facts.pid, run.artifact, run.copy)
        if run.name in with_nan:
            return str(number)
        also |= {number} if run.name in absorbed else set()
        if not numbers[which]:
            rows = (row for step in run.steps for row in launched.tensors(run.rows(step)))
            size += _FACTOR * sum(row.size * element_size(row.dtype) for row in rows)
        numbers[which].append(number)
    known = sorted({number for of in numbers.values() for number in of})
    many = max(1, min(_MOST, limit // max(1, size)))
    chosen = known[:many]
    if len(known) > many and many > 1:
        chosen = [*chosen[:-1], known[-1]]
    return ",".join(map(str, sorted({*chosen, *also})))


def unsaved(dump: Path) -> range | None:
    """The launches from the first one whose values exceeded --max-bytes, `None` if none did."""
    ran, exceeded = set(), set()
    for run in open_dump(dump).runs:
        for step in (x for x in run.steps if x.launch is not None):
            ran.add(step.launch or 0)
            if any("max-bytes" in row.unsaved for row in launched.tensors(run.rows(step))):
                exceeded.add(step.launch or 0)
    return range(min(exceeded), max(ran) + 1) if exceeded else None


def lacks_inputs(dump: Path) -> bool:
    """Whether no value is recorded before a launch: nothing but results was asked for."""
    runs = open_dump(dump).runs
    rows = (row for run in runs for step in run.steps if step.launch is not None
            for row in launched.tensors(run.rows(step)))  # fmt: skip
    return all(row.phase != "before" for row in rows)


def is_saved(dump: Path, run: str, launch: int, iteration: int) -> bool:
    """Whether all values of a launch were saved."""
    one = next((x for x in open_dump(dump).runs if x.name == run), None)
    if one is None or (step := one.step(launch, iteration)) is None:
        return False
    rows = launched.tensors(one.rows(step))
    return bool(rows) and not any(row.unsaved for row in rows)
