"""Compares two dumps: which launches stand for each other, and which is the first that went wrong.

Dumps are read twice, in order: once for what happened, once for the values of what stands for each
other. Only figures are kept, so that dumps larger than memory can be compared.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.alignment import Pair, align, canonical
from rewriter.comparison import values
from rewriter.comparison.blame import Run, judge, judge_by_readers, worst
from rewriter.comparison.dataflow import Node, Source, trace
from rewriter.comparison.growth import trace_back
from rewriter.comparison.pairing import pair_outputs, pair_reads, pair_results, pair_untouched
from rewriter.comparison.tolerance import Tolerances
from rewriter.comparison.types import (
    DIFFERS,
    OUTPUTS,
    Comparison,
    LaunchComparison,
    Place,
    RunComparison,
    State,
    TensorComparison,
)
from rewriter.comparison.values import Side
from rewriter.dump import Dump, RunDump, open_dump
from rewriter.errors import RewriterError
from rewriter.probes import matches
from rewriter.types import Json

# From this key on, launches were matched though their kernels' names say something else.
_LOOSE = 5
_AHEAD = 64  # launches whose files are being read at a time

Progress = Callable[[int, int], None]


def compare(
    a: str | Path | Dump,
    b: str | Path | Dump,
    *,
    tolerances: Tolerances | None = None,
    kernels: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two dumps launch by launch; b is what is expected.

    `a` and `b` may be dumps, single ranks of one, or single runs (`DUMP/rank0/run3`). `tolerances`
    are those of `torch.testing.assert_close` by default. `kernels` limits what is compared to
    launches of kernels that match one of these patterns. `progress` is called with the number of
    launches compared and their total.

    Raises `RewriterError` where a dump is none or damaged, and where the two have nothing in common
    that could be compared.
    """
    a, b = (dump if isinstance(dump, Dump) else open_dump(dump) for dump in (a, b))
    tolerances = tolerances or Tolerances()
    patterns = None if kernels is None else tuple(kernels)
    pairs = _pair_runs(a.runs, b.runs)
    total = sum(len(x.steps) for x, y in pairs if x and y)
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    comparison = Comparison(
        a.path,
        b.path,
        a.manifest,
        b.manifest,
        tuple(_compare_runs(x, y, tolerances, patterns, report) for x, y in pairs if x and y),
        (
            *(f"A {x.name}" for x, y in pairs if x and not y),
            *(f"B {y.name}" for x, y in pairs if y and not x),
        ),
    )
    _require_common(comparison)
    return comparison


def _pair_runs(
    a: Sequence[RunDump], b: Sequence[RunDump]
) -> list[tuple[RunDump | None, RunDump | None]]:
    """Calls of one wrapper by their order; wrappers by name, or else by what they launch."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    pairs = align([_run_keys(run) for run in a], [_run_keys(run) for run in b])
    return [(None if i is None else a[i], None if j is None else b[j]) for i, j, *_ in pairs]


def _run_keys(run: RunDump) -> tuple[Hashable, ...]:
    kernels = tuple(step.kernel for step in run.steps)
    names = tuple(map(canonical, kernels))
    return (
        (run.rank, run.artifact, kernels),
        (run.rank, kernels),
        (run.rank, names),
        (run.rank, frozenset(names)),
        (run.rank, run.artifact),
        run.rank,
    )


@dataclass(frozen=True)
class _Both:
    """One call of a wrapper in both dumps, its steps, and which of them stand for each other."""

    a: RunDump
    b: RunDump
    nodes_a: Sequence[Node]
    nodes_b: Sequence[Node]
    pairs: Sequence[Pair]


def _compare_runs(
    a: RunDump,
    b: RunDump,
    tolerances: Tolerances,
    patterns: Sequence[str] | None,
    report: Callable[[], None],
) -> RunComparison:
    nodes_a, nodes_b = trace(a), trace(b)
    pairs = align([node.keys for node in nodes_a], [node.keys for node in nodes_b])
    both = _Both(a, b, nodes_a, nodes_b, pairs)
    launches = []
    for launch in _in_order(lambda pair: _compare(both, pair, tolerances, patterns), pairs):
        launches.append(launch)
        report()
    judged = list(_blamed(both, _without_false_pairs(both, launches)))
    return RunComparison(a.name, b.name, tuple(trace_back(judged, nodes_a)))


def _in_order(
    act: Callable[[Pair], LaunchComparison], pairs: Sequence[Pair]
) -> Iterator[LaunchComparison]:
    """The results of `act` in the order of `pairs`, several at work at a time."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        waiting: deque[Future[LaunchComparison]] = deque()
        for pair in pairs:
            waiting.append(pool.submit(act, pair))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _compare(
    both: _Both, pair: Pair, tolerances: Tolerances, patterns: Sequence[str] | None
) -> LaunchComparison:
    """Compare what two launches read and wrote; whose fault a difference is, comes later."""
    x = None if pair.a is None else both.nodes_a[pair.a]
    y = None if pair.b is None else both.nodes_b[pair.b]
    if x is None or y is None:
        return _alone(x.place if x else None, y.place if y else None)
    kernel = x.place.kernel
    result = LaunchComparison(x.place, y.place, "unknown", "unknown", moved=pair.moved)
    if patterns is not None and x.place.launch is not None and not matches(kernel, patterns):
        return result

    def compared(rows: Iterable[tuple[Json, Json]]) -> tuple[TensorComparison, ...]:
        return tuple(
            values.compare(kernel, Side(one, both.a.path), Side(other, both.b.path), tolerances)
            for one, other in rows
        )

    if kernel == OUTPUTS:
        reads = compared(pair_outputs(x.rows, y.rows))
        state = worst([tensor.state for tensor in reads])
        return replace(result, state=state, inputs=state, reads=reads)
    rows_a, rows_b = both.a.rows(x.step), both.b.rows(y.step)
    same = canonical(kernel) == canonical(y.place.kernel)
    written, *left = pair_results(rows_a, rows_b, same_kernel=same)
    reads = compared(pair_reads(rows_a, rows_b))
    results = compared([*written, *pair_untouched(rows_a, rows_b)])
    return replace(
        result,
        state=worst([tensor.state for tensor in results]),
        inputs=worst([tensor.state for tensor in reads]),
        reads=reads,
        results=results,
        reasons=tuple(
            f"only {side} has {', '.join(row['arg'] for row in rest)}"
            for side, rest in zip("AB", left, strict=True)
            if rest
        ),
    )


def _alone(a: Place | None, b: Place | None) -> LaunchComparison:
    return LaunchComparison(a, b, "structural", "unknown")


def _without_false_pairs(
    both: _Both, launches: Sequence[LaunchComparison]
) -> Iterator[LaunchComparison]:
    """Part launches that were taken for each other by provenance, shape or order, and are not.

    They write nothing that could be compared, or what they write differs while all agrees that
    reads it.
    """
    agreed: set[int] = set()  # steps of A whose results somebody read, and read the same
    for launch in launches:
        if launch.a and launch.b and launch.inputs == "equal":
            agreed |= {source.step for source in both.nodes_a[launch.a.step].origins}
    for launch, pair in zip(launches, both.pairs, strict=True):
        loose = pair.level >= _LOOSE or pair.moved
        unfit = bool(launch.reasons) and not launch.results
        false = launch.state in DIFFERS and launch.a and launch.a.step in agreed
        if launch.matched and loose and (unfit or false):
            yield _alone(launch.a, None)
            yield _alone(None, launch.b)
        else:
            yield launch


def _blamed(both: _Both, launches: Iterable[LaunchComparison]) -> Iterator[LaunchComparison]:
    launches = list(launches)
    matched = {x.a.step: x.b.step for x in launches if x.a and x.b}
    states_a: dict[Source, State] = {}
    states_b: dict[Source, State] = {}
    for launch in launches:
        for tensor in launch.results:
            for states, nodes, place, row in (
                (states_a, both.nodes_a, launch.a, tensor.a),
                (states_b, both.nodes_b, launch.b, tensor.b),
            ):
                assert place is not None
                slot = nodes[place.step].slots.get(row["arg"])
                if slot is not None and tensor.state != "unknown":
                    states[Source(place.step, slot)] = tensor.state
    readers = _states_as_read(both, launches, states_a, states_b)
    run_a = Run(both.nodes_a, states_a)
    run_b = Run(both.nodes_b, states_b)
    back = {theirs: ours for ours, theirs in matched.items()}
    for launch in launches:
        judged = judge(launch, run_a, run_b, back) if launch.matched else launch
        if launch.a and not judged.blame and (wronged := readers.get(launch.a.step)):
            judged = judge_by_readers(judged, run_a, wronged)
        yield judged


def _states_as_read(
    both: _Both,
    launches: Iterable[LaunchComparison],
    states_a: dict[Source, State],
    states_b: dict[Source, State],
) -> dict[int, list[Place]]:
    """Add the states of results that were not compared where they were made, as they were read.

    Where both sides of a launch read the same operand from a launch without a counterpart, these
    values stand for each other. Returns the launches that read wrong ones, by the step of A that
    made them.
    """
    seen: set[tuple[Source, str]] = set()
    found: list[tuple[Source, Source, State]] = []
    readers: dict[int, list[Place]] = {}
    for launch in launches:
        for tensor in launch.reads:
            assert launch.a is not None
            assert launch.b is not None
            name = tensor.a["arg"]
            ours = both.nodes_a[launch.a.step].given.get(name, ())
            theirs = both.nodes_b[launch.b.step].given.get(tensor.b["arg"], ())
            if len(ours) != 1 or len(theirs) != 1 or tensor.state == "unknown":
                continue
            x, y = ours[0], theirs[0]
            # Who reads a value first reads it as it was made.
            if x in states_a or y in states_b or (x, name) in seen:
                continue
            seen.add((x, name))
            found.append((x, y, tensor.state))
            if tensor.state in DIFFERS:
                readers.setdefault(x.step, []).append(launch.a)
    for x, y, state in found:
        states_a[x] = worst([state, states_a.get(x, "unknown")])
        states_b[y] = worst([state, states_b.get(y, "unknown")])
    return readers


def _require_common(comparison: Comparison) -> None:
    launches = [launch for launch in comparison.launches if launch.matched]
    if not any(launch.a and launch.a.launch is not None for launch in launches):
        raise RewriterError(
            "nothing-in-common",
            f"{comparison.a} and {comparison.b} have no launch in common",
            hint="Expected dumps of one model; `rewriter diff` of their two artifacts shows what "
            "they launch.",
        )
    if not any(tensor.state != "unknown" for launch in launches for tensor in launch.tensors):
        raise RewriterError(
            "nothing-to-compare",
            f"{comparison.a} and {comparison.b} hold no values that could be compared",
            hint="Run both with --probe save (or print, or hash), with the same --when.",
        )
