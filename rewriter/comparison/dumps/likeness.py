"""A key for the comparison of a rank with the reference: ranks with equal keys compare alike.

Replicas record the same rows except for their device and what was measured. If two ranks have the
rows of the reference, and their values differ from its values at the same places and in the same
ways, one comparison serves for both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import UNSET, structs

from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.values import statistics_state
from rewriter.core.errors import RewriterError
from rewriter.dump import dataflow
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import EventRow, TensorRow

_VALUES = {
    **dict.fromkeys(("min", "max", "mean", "std", "nan", "inf"), UNSET),
    "neginf": 0,
    "near_limit": 0,
    "fingerprint": "",
}

Likeness = tuple[Hashable, ...]


@dataclass(frozen=True)
class _Call:
    """The rows of a call: `form` is what all replicas have, `same` are the first positions of equal
    values, by which the flow of values is known."""

    form: tuple[object, ...]
    same: list[int]
    values: list[TensorRow]

    @classmethod
    def of(cls, run: RunDump) -> _Call | None:
        """`None` if it is damaged, which the comparison reports, or if tensors were saved."""
        try:
            rows = list(run.events())
        except RewriterError:
            return None
        values = dataflow.tensors(rows)
        if run.cut or any(row.file for row in values):
            return None
        # For a rank with several devices, it matters which values are on the same device.
        is_one = len({row.device for row in values}) == 1

        def form(row: EventRow) -> EventRow:
            if not isinstance(row, TensorRow):
                return row
            device = row.device.partition(":")[0] if is_one else row.device
            return structs.replace(row, device=device, **_VALUES)

        facts = run.facts
        known = facts.artifact, facts.sha256, facts.outputs, facts.launches, list(map(form, rows))
        return cls(known, _places(map(dataflow.fingerprint, values)), values)


def _places(values: Iterable[Hashable]) -> list[int]:
    """The first position of each value: equal lists have the same values repeated."""
    firsts: dict[Hashable, int] = {}
    return [firsts.setdefault(value, at) for at, value in enumerate(values)]


class Reference:
    """The calls of the rank that others are compared with."""

    def __init__(self, runs: Sequence[RunDump], tolerances: Tolerances) -> None:
        self._starts = _places(run.facts.pid for run in runs)  # the processes of the calls
        self.calls = [_Call.of(run) for run in runs]
        self._tolerances = tolerances

    def find(self, runs: Sequence[RunDump]) -> Likeness | None:
        """The key for the comparison of these calls; `None` if it cannot be shared."""
        if _places(run.facts.pid for run in runs) != self._starts:
            return None
        found = []
        for run, known in zip(runs, self.calls, strict=True):
            one = None if known is None else _Call.of(run)
            if one is None or known is None or (one.form, one.same) != (known.form, known.same):
                return None
            pairs = zip(one.values, known.values, strict=True)
            found.append(bytes(self._difference(x, y) for x, y in pairs))
        return tuple(found)

    def _difference(self, row: TensorRow, other: TensorRow) -> int:
        """The result of comparing a value, as bits: do digests, counts and statistics agree?"""
        tolerance = self._tolerances.of(row.dtype, row.dtype)
        counts = (row.nan, row.inf) == (other.nan, other.inf)
        is_equal = not row.is_measured or statistics_state(row, other, tolerance) == "equal"
        return 4 * (row.digest == other.digest) + 2 * counts + is_equal
