"""Examines the comparison of two ranks of one dump: where they diverge, and which inputs differ.

Replicas may have different data: then nearly all values differ, and no launch is to blame. What
remains are launches whose results differ though their inputs agree, collectives that leave other
values on one rank, inputs that agreed at first and later differ, and records that end early.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from rewriter.comparison.dumps.types import (
    DIFFERS,
    Comparison,
    LaunchComparison,
    RunComparison,
    State,
    TensorComparison,
)
from rewriter.core.documents import Count
from rewriter.core.printed import printed
from rewriter.dump.launched import OUTPUTS, RecordedLaunch, variable
from rewriter.dump.names import KEPT
from rewriter.dump.reading import Dump, RunDump
from rewriter.instrumentation.matching import matches
from rewriter.locate.names import canonical

Reason = Literal[
    "launch", "collective", "inputs", "parameters", "ended", "seen",
    "data", "shards", "random", "received",
]  # fmt: skip
At = tuple[int, int, int]

# Collectives that leave equal values on all ranks of their group; scatter and exchange do not.
_AGREEING = re.compile(r"all_reduce|all_gather|broadcast")
_WAIT = re.compile(r"wait_tensor")
# Operators that draw random numbers, including Inductor's draw of a seed (`randint`).
_RANDOM = re.compile(
    r"(?:prims_)?(?:inductor_seeds?|rand|randn|randint|randperm|bernoulli|multinomial|normal|uniform"
    r"|exponential|native_dropout)(?:_|$)"
)


@printed("rank reason run names")
@dataclass(frozen=True)
class Divergence:
    """A place where a rank differs from the reference, and why.

    `launch`: its results differ, and none of its inputs. `collective`: it leaves other values than
    on the reference. `inputs`: inputs (`names`) differ that may not. `parameters`: inputs (`names`)
    differ that agreed in the first call of the wrapper. `ended`: the record of `rank` ends, and the
    other one continues. `seen`: the producers of the values were not compared. The rest are not
    faults, and the first of their kind. `data`: the rank has other inputs. `shards`: it has other
    parts of the model, which are not compared. `random`: it drew other
    random numbers. `received`: a collective gave it different values, as a scatter does.

    `run` is the call as the rank names it, such as rank1/run0. `at` orders divergences as the
    reference ran: its call and step, and 1 for what only the other side ran after that.
    """

    reason: Reason
    rank: Count
    run: str
    at: At
    launch: LaunchComparison
    names: tuple[str, ...] = ()
    ended: RecordedLaunch | None = None  # the last launch in the record
    labels: tuple[str, ...] = ()  # the names with what they are in the model
    is_known: bool = True  # of data: that each rank may have its own


@dataclass(frozen=True)
class Replica:
    """One rank compared with the reference. `divergences` are in the order in which they happened,
    `given` are differences that are not a fault.

    `comparison` is `None` if the two ranks have nothing in common, and `why` says so. If `alike` is
    given, it is the comparison of that other rank, which has the same result launch by launch: only
    the values and the names of calls differ. The launches of the divergences are the other rank's,
    too.
    """

    rank: int
    comparison: Comparison | None
    divergences: tuple[Divergence, ...] = ()
    given: tuple[Divergence, ...] = ()
    why: str = ""
    alike: int | None = None

    @property
    def first(self) -> Divergence | None:
        return min(self.divergences, key=lambda divergence: divergence.at, default=None)


def like(other: Replica, rank: int, names: Mapping[str, str]) -> Replica:
    """A rank whose values differ from the reference just as those of `other` do; `names` maps the
    calls of the other rank to those of this one."""
    divergences, given = (
        tuple(replace(divergence, rank=rank, run=names[divergence.run]) for divergence in several)
        for several in (other.divergences, other.given)
    )
    return Replica(rank, other.comparison, divergences, given, other.why, other.rank)


def examine(
    rank: int,
    comparison: Comparison,
    ours: Dump,
    reference: Dump,
    data: Sequence[str] | None = None,
) -> Replica:
    """Sort the differences between a rank (dump A) and the reference (dump B).

    `data` are patterns of the names of inputs that each rank has its own values of; without it, any
    input may be data that differs from the first call on.
    """
    search = _Search(rank, {run.name: run for run in (*ours.runs, *reference.runs)}, data)
    for run in comparison.runs:
        search.read(run)
    divergences = [*search.divergences, *_ended(comparison, ours, reference)]
    given = tuple(search.given.values())
    if not (comparison.equal or divergences or given):
        divergences = list(search.seen(comparison))
    return Replica(rank, comparison, tuple(sorted(divergences, key=lambda x: x.at)), given)


class _Search:
    """Reads the runs of a comparison in order."""

    def __init__(self, rank: int, runs: Mapping[str, RunDump], data: Sequence[str] | None) -> None:
        self._rank = rank
        self._data = data
        self._runs = runs
        self._firsts: dict[tuple[str, str], State] = {}  # of each input, by wrapper and name
        self.divergences: list[Divergence] = []
        self.given: dict[Reason, Divergence] = {}

    def read(self, run: RunComparison) -> None:
        collectives = _Collectives()
        recorded = any(launch.matched and launch.place.is_inputs for launch in run.launches)
        near: set[str] = set()  # variables that differ, though within tolerance
        for launch, at in self._in_order(run):
            wrong = collectives.read(launch)
            if launch.place.is_inputs:
                self._read_inputs(launch, run, at)
            elif wrong is not None:
                found = Divergence("collective", self._rank, run.a, at, launch, (wrong,))
                self.divergences.append(found)
            elif launch.blame == "culprit":
                self._read_culprit(launch, run, at, near, recorded=recorded)
            written = (x for x in launch.results if x.state != "unknown")
            near -= {variable(x.name) for x in written}
            near |= {variable(x.name) for x in launch.tensors if x.apart}

    def seen(self, comparison: Comparison) -> Iterator[Divergence]:
        """Yield the first launch that differs, if nothing is to blame."""
        for run in comparison.runs:
            for launch, at in self._in_order(run):
                is_blank = launch.matched and not launch.blame and launch.place.kind != "collective"
                if is_blank and launch.inputs in DIFFERS:
                    yield Divergence("seen", self._rank, run.a, at, launch)
                    return

    def _in_order(self, run: RunComparison) -> Iterator[tuple[LaunchComparison, At]]:
        number, step = self._runs[run.b].number, -1
        for launch in run.launches:
            step = launch.b.step if launch.b else step
            yield launch, (number, step, 0 if launch.b else 1)

    def _read_inputs(self, launch: LaunchComparison, run: RunComparison, at: At) -> None:
        inside = self._runs[run.b]
        wrapper, names = inside.artifact, inside.names.inputs
        kinds = {x.name: names[x.name].kind for x in launch.results if x.name in names}
        for tensor in launch.results:
            if tensor.state != "unknown":
                self._firsts.setdefault((wrapper, tensor.name), tensor.state)
        wrong = {tensor.name for tensor in launch.results if tensor.state in DIFFERS}
        kept = [x for x, kind in kinds.items() if kind in KEPT]
        # A rank with a part of the model has its own values of most parameters.
        firsts = [self._firsts.get((wrapper, x)) in DIFFERS for x in kept]
        shards = {x for x, kind in kinds.items() if kind == "shard"}
        if self._data is None and 2 * sum(firsts) > len(firsts) > 1:
            shards |= {x for x, is_own in zip(kept, firsts, strict=True) if is_own}
        # What a function is given is data if it also has a model; else it may be its weights.
        data = {x for x, kind in kinds.items() if kind == "data" and (kept or shards)}
        after = (x for row in inside.table.values() for x in row.after or ())
        updated = {name for role, name, *_ in after if role != "in"}  # as a running mean is
        # The inputs of a backward graph are gradients and values from the forward one.
        backward = any(tensor.name.startswith("tangents_") for tensor in launch.results)
        own, inputs, parted, is_known = [], [], [], True
        for name in (x.name for x in launch.results if x.name in wrong - shards):
            kind = kinds.get(name, "")
            follows = backward and not name.startswith("primals_")
            called = (name, self._runs[run.b].names.called(name))
            is_named = any(matches(x, self._data or ()) for x in called)
            if is_named or follows or (kind == "buffer" and name in updated):
                own.append(name)
            elif kind in KEPT:
                inputs.append(name)
            elif self._firsts[wrapper, name] == "equal" and name not in data:
                parted.append(name)
            elif self._data is not None:
                inputs.append(name)
            else:
                own.append(name)
                is_known = is_known and name in data
        # After a fault, differing inputs of a later call may be its consequence.
        if not self.divergences:
            if own:
                given = self._inputs("data", run, at, launch, own)
                self._give(replace(given, is_known=is_known))
            if parts := sorted(wrong & shards):
                is_known = all(kinds.get(x) == "shard" for x in parts)  # or it is only likely
                given = self._inputs("shards", run, at, launch, parts)
                self._give(replace(given, is_known=is_known))
        self._part_once(self._inputs("inputs", run, at, launch, inputs))
        self._part_once(self._inputs("parameters", run, at, launch, parted))

    def _inputs(
        self, reason: Reason, run: RunComparison, at: At, launch: LaunchComparison, names: list[str]
    ) -> Divergence:
        known = self._runs[run.b].names
        kinds = [x.kind if (x := known.inputs.get(name)) else "" for name in names]
        labels = tuple(  # such as `the buffer 1.scale`
            f"the {kind} " * (kind in KEPT) + known.called(name)
            for kind, name in zip(kinds, names, strict=True)
        )
        return Divergence(reason, self._rank, run.a, at, launch, tuple(names), labels=labels)

    def _read_culprit(
        self, launch: LaunchComparison, run: RunComparison, at: At, near: Collection[str], *,
        recorded: bool,
    ) -> None:  # fmt: skip
        kernel = launch.place.kernel
        ends = (_tail(run, side) or _is_stopped(run, side, self._runs) for side in "ab")
        if kernel == OUTPUTS and any(ends):
            return  # the record ended before all outputs of the call were written
        if launch.place.kind == "collective":
            if not _AGREEING.search(kernel):
                self._give(Divergence("received", self._rank, run.a, at, launch))
            return
        if _RANDOM.match(canonical(kernel)):
            self._give(Divergence("random", self._rank, run.a, at, launch))
            return
        wrong = tuple(x.name for x in launch.reads if x.state in DIFFERS or x.apart)
        facts = self._runs[run.a].launch_row(launch.a.launch if launch.a else None)
        # What it reads may have been recorded where it was written.
        wrong += tuple(name for _, name, *_ in facts.reads if variable(name) in near)
        if wrong or (not recorded and launch.inputs != "equal"):
            # The inputs of the call were not recorded, and the launch may have read one; or what it
            # read is equal within tolerance only, of which its results make more.
            names, is_known = tuple(dict.fromkeys(wrong)), recorded and bool(self.given)
            self._give(Divergence("data", self._rank, run.a, at, launch, names, None, (), is_known))
        else:
            self.divergences.append(Divergence("launch", self._rank, run.a, at, launch))

    def _part_once(self, divergence: Divergence) -> None:
        if divergence.names and all(x.reason != divergence.reason for x in self.divergences):
            self.divergences.append(divergence)

    def _give(self, divergence: Divergence) -> None:
        first = self.given.setdefault(divergence.reason, divergence)
        if first.is_known and not divergence.is_known:
            self.given[divergence.reason] = replace(first, is_known=False)


class _Collectives:
    """Tracks the results of collectives that have to agree, from their start to their end.

    The results are complete once they were waited for. Results of other collectives depend on the
    inputs of other ranks, and tell nothing.
    """

    def __init__(self) -> None:
        self._started: dict[str, str] = {}  # by variable, the kernel
        self._ended: dict[str, str] = {}

    def read(self, launch: LaunchComparison) -> str | None:
        """The collective whose results a launch shows to differ, if there is one."""
        if launch.place.kind != "collective":
            return self._first_seen(launch.reads)
        if not _WAIT.search(launch.place.kernel):
            for tensor in launch.results if _AGREEING.search(launch.place.kernel) else ():
                self._started[variable(tensor.name)] = launch.place.kernel
            return None
        for name in {variable(tensor.name) for tensor in launch.tensors} & self._started.keys():
            self._ended[name] = self._started.pop(name)
        return self._first_seen(launch.results)

    def _first_seen(self, tensors: Iterable[TensorComparison]) -> str | None:
        found = None
        for tensor in tensors:
            name = variable(tensor.name)
            if name in self._ended and tensor.state != "unknown":
                kernel = self._ended.pop(name)
                found = found or (kernel if tensor.state in DIFFERS else None)
        return found


def _ended(comparison: Comparison, ours: Dump, reference: Dump) -> Iterator[Divergence]:
    """Yield where a rank stopped in its last call; one with fewer calls may have had less work."""
    runs = {run.name: run for run in (*ours.runs, *reference.runs)}
    last = (ours.runs[-1].name, reference.runs[-1].name)
    for run in comparison.runs:
        for side, name, other in (("a", run.a, run.b), ("b", run.b, run.a)):
            final, missing = _final(run, side), _tail(run, side)
            if name not in last or not (final or missing):
                continue
            known = {row.kernel for row in runs[name].table.values()}
            goes_on = bool(missing) and missing[0].place.kernel in known
            is_cut = runs[name].cut and not runs[other].cut
            if goes_on or is_cut or _is_stopped(run, side, runs):
                at = (runs[run.b].number, final.b.step if final and final.b else -1, 1)
                shown = missing[0] if goes_on or final is None else final
                place = getattr(final, side) if final else None
                yield Divergence("ended", runs[name].rank, name, at, shown, ended=place)


def _final(run: RunComparison, side: str) -> LaunchComparison | None:
    """The last launch, or the inputs, that one side has."""
    there = [launch for launch in run.launches if getattr(launch, side) is not None]
    return next((x for x in reversed(there) if x.place.kernel != OUTPUTS), None)


def _tail(run: RunComparison, side: str) -> list[LaunchComparison]:
    """The launches at the end of a run that one side lacks, in order."""
    launches = [launch for launch in run.launches if launch.place.launch is not None]
    tail = list(takewhile(lambda launch: getattr(launch, side) is None, reversed(launches)))
    return tail[::-1]


def _is_stopped(run: RunComparison, side: str, runs: Mapping[str, RunDump]) -> bool:
    """Whether one side, and not the other, ends inside a launch, with nothing recorded after it."""
    final = _final(run, side)
    if final is None or final.a is None or final.b is None or final.place.is_inputs:
        return False
    rows = {"a": runs[run.a].rows(runs[run.a].steps[final.a.step])}
    rows["b"] = runs[run.b].rows(runs[run.b].steps[final.b.step])
    ended = {x: any(row.phase == "after" for row in of) for x, of in rows.items()}
    return not ended.pop(side) and any(ended.values())
