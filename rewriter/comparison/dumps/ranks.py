"""Compares the ranks of one dump: where replicas first diverge, and which are the odd ones.

Replicas record the same rows except for their device and what was measured. If two ranks have the
rows of the reference, and their values differ from its values at the same places and in the same
ways, one comparison serves for both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from msgspec import UNSET, structs

from rewriter.comparison.dumps.blame import worst
from rewriter.comparison.dumps.compare import Progress, compare, compare_runs, count_launches
from rewriter.comparison.dumps.replica import Divergence, Replica, examine, like
from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import DIFFERS, Comparison, LaunchComparison, State
from rewriter.comparison.dumps.values import statistics_state
from rewriter.core import parallel
from rewriter.core.documents import Count
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.dump import dataflow, launched
from rewriter.dump.documents import Manifest
from rewriter.dump.reading import Dump, RunDump, open_dump
from rewriter.dump.rows import EventRow, TensorRow

_SIZE = 1 << 18  # the assumed work per rank, for `parallel`
FEW = 8  # ranks beside the reference that are all shown in full
_APART = ("nothing-in-common", "nothing-to-compare")
_VALUES = {
    **dict.fromkeys(("min", "max", "mean", "std", "nan", "inf"), UNSET),
    "neginf": 0,
    "near_limit": 0,
    "fingerprint": "",
}

Likeness = tuple[Hashable, ...]


@printed("path manifest reference groups odd")
@dataclass(frozen=True)
class Ranks:
    """The ranks of a dump, each compared with `reference`.

    `first` is the first divergence in the order of the reference. `groups` are the ranks grouped by
    equal values there; a rank that had different inputs there is in no group. `odd` are the ranks
    outside the largest group, if one is larger than all others.
    """

    path: Path
    manifest: Manifest
    reference: Count
    replicas: tuple[Replica, ...]
    groups: tuple[tuple[Count, ...], ...] = ()
    odd: tuple[Count, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return (self.reference, *(replica.rank for replica in self.replicas))

    @property
    def parted(self) -> Replica | None:
        """The replica that diverges first."""
        firsts = [(x.first.at, n) for n, x in enumerate(self.replicas) if x.first]
        return self.replicas[min(firsts)[1]] if firsts else None

    @property
    def first(self) -> Divergence | None:
        return self.parted.first if self.parted else None

    @property
    def given(self) -> tuple[Divergence, ...]:
        """Divergences that are not a fault."""
        return tuple(divergence for replica in self.replicas for divergence in replica.given)

    @property
    def is_unexplained(self) -> bool:
        """Whether ranks differ in inputs of which it is not known that each may have its own."""
        return not all(x.is_known for x in self.given)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons that were made, beginning with that of the first replica to diverge."""
        parted = self.parted
        ordered = sorted(self.replicas, key=lambda replica: replica is not parted)
        made = {id(x.comparison): x.comparison for x in ordered if x.comparison}
        return tuple(made.values())


def compare_ranks(
    dump: str | Path | Dump,
    ranks: Sequence[int] = (),
    *,
    tolerances: Tolerances | None = None,
    kernels: Iterable[str] | None = None,
    data: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Ranks:
    """Compare ranks of a dump, by default all of them, with the first one.

    If most of three or more ranks agree and the first is not among these, the lowest of these is
    the reference instead. `data` are patterns of the names of inputs that each rank has its own
    values of; differences in other inputs are a fault. `progress` counts the launches of all ranks
    except the reference. For the other arguments see `compare`.

    Raises `RewriterError` if a rank does not exist or is the only one, and as `compare` does.
    """
    dump = dump if isinstance(dump, Dump) else open_dump(dump)
    tolerances = replace(tolerances or Tolerances(), scaled=True)
    patterns = None if kernels is None else tuple(kernels)
    own = None if data is None else tuple(data)
    dumps = _chosen(dump, ranks)
    done, total = count(1), 0  # of several comparisons

    def counted(_done: int, _total: int) -> None:
        if progress:
            progress(next(done), total)

    def compared(rank: int, reference: Dump) -> Replica:
        ours = _fresh(dumps[rank])
        try:
            comparison = compare(
                ours, reference, tolerances=tolerances, kernels=patterns, progress=counted
            )
        except RewriterError as error:
            if error.slug not in _APART:
                raise
            return Replica(rank, None, why=error.message)
        return examine(rank, comparison, ours, reference, own)

    def against(reference: int) -> Ranks:
        nonlocal total
        others = [rank for rank in dumps if rank != reference]
        likenesses = _likenesses([dumps[rank] for rank in others], dumps[reference], tolerances)
        if progress:
            pairs = zip(reversed(others), reversed(likenesses), strict=True)
            one_each = {likeness or rank: rank for rank, likeness in pairs}
            fresh = (_fresh(dumps[rank]) for rank in one_each.values())
            total += sum(count_launches(opened, dumps[reference]) for opened in fresh)
        known: dict[Likeness, Replica] = {}
        replicas = []
        for rank, likeness in zip(others, likenesses, strict=True):
            other = None if likeness is None else known.get(likeness)
            if other is not None:
                names = zip(dumps[other.rank].runs, dumps[rank].runs, strict=True)
                replicas.append(like(other, rank, {x.name: y.name for x, y in names}))
                continue
            replicas.append(made := compared(rank, dumps[reference]))
            if likeness is not None:
                known[likeness] = made
        result = Ranks(dump.path, dump.manifest, reference, tuple(replicas))
        return _grouped(result, dumps, tolerances)

    result = against(next(iter(dumps)))
    if all(replica.comparison is None for replica in result.replicas):
        raise RewriterError(
            "nothing-in-common",
            f"{dump.path}: {result.replicas[0].why}",
            hint="Expected replicas of one model, run with --probe save, print or hash; "
            "`rewriter compare DUMP --ranks A,B` names two that ran the same.",
        )
    if result.reference in result.odd:
        return against(min(rank for rank in _largest(result.groups) or result.ranks))
    return result


def _likenesses(
    dumps: Sequence[Dump], reference: Dump, tolerances: Tolerances
) -> list[Likeness | None]:
    """The key for each rank's comparison with the reference, if known: ranks with equal keys
    compare alike. None of few ranks, each of which is compared by itself."""
    if len(dumps) <= FEW or None in (found := Reference(reference.runs, tolerances)).calls:
        return [None] * len(dumps)
    calls = [dump.runs for dump in dumps]
    keys = parallel.each(lambda runs: (found.find(runs),), calls, [_SIZE] * len(calls))
    return [key for (key,) in keys]


def _fresh(dump: Dump) -> Dump:
    """The same dump without cached rows: those of a thousand ranks would be too many."""
    return replace(dump, runs=tuple(replace(run) for run in dump.runs))


def _chosen(dump: Dump, ranks: Sequence[int]) -> dict[int, Dump]:
    """The dump of each rank, in the order in which they were named."""
    known = sorted({run.rank for run in dump.runs})
    if missing := [rank for rank in ranks if rank not in known]:
        raise RewriterError(
            "no-such-rank",
            f"{dump.path} has no rank {missing[0]}",
            hint=f"Its ranks: {', '.join(map(str, known))}.",
        )
    chosen = list(dict.fromkeys(ranks)) or known
    if len(chosen) < 2:
        raise RewriterError(
            "one-rank",
            f"{dump.path}: only rank {chosen[0]} is there, and a comparison needs two ranks",
            hint=f"Its ranks: {', '.join(map(str, known))}. A program of several processes writes "
            "one for each if RANK or LOCAL_RANK is set, as torchrun does.",
        )
    runs = {rank: tuple(run for run in dump.runs if run.rank == rank) for rank in chosen}
    return {rank: replace(dump, path=dump.path / f"rank{rank}", runs=x) for rank, x in runs.items()}


def _grouped(result: Ranks, dumps: dict[int, Dump], tolerances: Tolerances) -> Ranks:
    """The result with the groups of equal ranks at the first divergence."""
    first = result.first
    if first is None:
        return result
    if first.reason == "ended":
        every = (x for replica in result.replicas for x in replica.divergences)
        ended = [x.rank for x in every if x.at == first.at and x.reason == "ended"]
        rest = tuple(rank for rank in result.ranks if rank not in ended)
        groups = [rest, *((rank,) for rank in dict.fromkeys(ended))]
        return _with_odd(result, [group for group in groups if group])
    groups = [_agreeing(result, first)]
    there = {  # by rank, its first divergence at this place
        replica.rank: divergence
        for replica in result.replicas
        for divergence in reversed(replica.divergences)
        if divergence.at == first.at
    }
    for rank, divergence in there.items():
        for number, group in enumerate(groups[1:], 1):
            other = there[group[0]]
            if _is_equal(dumps[rank], divergence, dumps[group[0]], other, tolerances):
                groups[number] = (*group, rank)
                break
        else:
            groups.append((rank,))
    return _with_odd(result, groups)


def _with_odd(result: Ranks, groups: Sequence[tuple[int, ...]]) -> Ranks:
    largest = _largest(groups) if len(result.ranks) > 2 else None
    odd = [rank for group in groups if group is not largest for rank in group] if largest else []
    return replace(result, groups=tuple(groups), odd=tuple(sorted(odd)))


def _largest(groups: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The group that has more ranks than any other, if there is one."""
    most = max(map(len, groups), default=0)
    largest = [group for group in groups if len(group) == most]
    return largest[0] if len(largest) == 1 else None


def _agreeing(result: Ranks, first: Divergence) -> tuple[int, ...]:
    """The reference, and the ranks with equal values at this place."""
    there = first.launch.b and (first.launch.b.run, first.launch.b.step)
    times = {
        id(comparison): sum(
            (x.b.run, x.b.step) == there and _state(x, first) == "equal"
            for x in comparison.launches
            if x.b is not None
        )
        for comparison in result.comparisons
    }
    agreeing = [[x.rank] * times.get(id(x.comparison), 0) for x in result.replicas]
    return (result.reference, *chain.from_iterable(agreeing))


def _is_equal(a: Dump, of_a: Divergence, b: Dump, of_b: Divergence, tolerances: Tolerances) -> bool:
    """Whether two ranks that diverge from the reference at one place are equal there."""
    if of_a.launch.a is None or of_b.launch.a is None:
        return False
    steps = of_a.launch.a.step, of_b.launch.a.step
    sides = ((a, of_a.run), (b, of_b.run))
    (x,), (y,) = ([run for run in dump.runs if run.name == name] for dump, name in sides)
    for launch in compare_runs(x, y, tolerances).launches:
        if launch.a and launch.b and (launch.a.step, launch.b.step) == steps:
            return _state(launch, of_a) not in DIFFERS
    return False


def _state(launch: LaunchComparison, first: Divergence) -> State:
    """The state of what diverges; of a call's inputs, some may be data and others not."""
    if first.reason not in ("inputs", "parameters"):
        return launch.state
    return worst([tensor.state for tensor in launch.results if tensor.name in first.names])


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
        values = launched.tensors(rows)
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
