"""Compares two dumps: which launches stand for each other, and which is the first that went wrong.

Dumps are read twice, in order: once for what happened, once for the values of what stands for each
other. Only figures are kept, so that dumps larger than memory can be compared.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from rewriter.alignment import Pair, align, canonical
from rewriter.comparison import values
from rewriter.comparison.blame import Run, judge, worst
from rewriter.comparison.dataflow import Node, Source, trace
from rewriter.comparison.pairing import pair_reads, pair_results, pair_untouched
from rewriter.comparison.tolerance import Tolerances
from rewriter.comparison.types import (
    DIFFERS,
    Comparison,
    LaunchComparison,
    RunComparison,
    TensorComparison,
)
from rewriter.comparison.values import Side
from rewriter.dump import Dump, RunDump, open_dump
from rewriter.errors import RewriterError
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
        tuple(
            f"A {x.name}" if x else f"B {y.name}" for x, y in pairs if not (x and y) and (x or y)
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


def _compare_runs(
    a: RunDump,
    b: RunDump,
    tolerances: Tolerances,
    patterns: Sequence[str] | None,
    report: Callable[[], None],
) -> RunComparison:
    nodes_a, nodes_b = trace(a), trace(b)
    pairs = align([node.keys for node in nodes_a], [node.keys for node in nodes_b])
    compared = _in_order(
        lambda pair: _compare_launch(a, nodes_a, b, nodes_b, pair, tolerances, patterns), pairs
    )
    found = []
    for launch in compared:
        found.append(launch)
        report()
    found = _drop_false_pairs(found, pairs, nodes_a, nodes_b)
    return RunComparison(a.name, b.name, tuple(_blamed(found, nodes_a, nodes_b)))


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


def _compare_launch(
    a: RunDump,
    nodes_a: Sequence[Node],
    b: RunDump,
    nodes_b: Sequence[Node],
    pair: Pair,
    tolerances: Tolerances,
    patterns: Sequence[str] | None,
) -> LaunchComparison:
    x = None if pair.a is None else nodes_a[pair.a]
    y = None if pair.b is None else nodes_b[pair.b]
    result = LaunchComparison(
        x.place if x else None, y.place if y else None, "structural", "unknown", moved=pair.moved
    )
    if x is None or y is None:
        return result
    kernel = x.place.kernel
    if patterns is not None and kernel and not any(fnmatchcase(kernel, p) for p in patterns):
        return replace(result, state="unknown")
    rows_a, rows_b = a.rows(x.step), b.rows(y.step)

    def values_of(pairs: Iterable[tuple[Json, Json]]) -> list[TensorComparison]:
        return [
            values.compare(kernel, Side(row, a.path), Side(other, b.path), tolerances)
            for row, other in pairs
        ]

    read = values_of(pair_reads(rows_a, rows_b))
    written, *left = pair_results(rows_a, rows_b)
    wrote = values_of([*written, *pair_untouched(rows_a, rows_b)])
    reasons = []
    for side, rest in zip("AB", left, strict=True):
        if rest:
            names = ", ".join(row["arg"] for row in rest)
            reasons.append(f"only {side} has {names}")
    return replace(
        result,
        state=worst([tensor.state for tensor in wrote]),
        inputs=worst([tensor.state for tensor in read]),
        reads=tuple(read),
        results=tuple(wrote),
        reasons=tuple(reasons),
    )


def _drop_false_pairs(
    launches: Sequence[LaunchComparison],
    pairs: Sequence[Pair],
    nodes_a: Sequence[Node],
    nodes_b: Sequence[Node],
) -> list[LaunchComparison]:
    """Part launches of other kernels whose results differ while everything that reads them agrees.

    They were taken for each other by provenance or shape, and are not the same computation.
    """
    agreed: set[int] = set()  # steps of A whose results somebody read, and read the same
    for launch in launches:
        if launch.a and launch.b and launch.inputs == "equal":
            agreed |= {source.step for source in nodes_a[launch.a.step].sources if source}
    result: list[LaunchComparison] = []
    for launch, pair in zip(launches, pairs, strict=True):
        loose = pair.level >= _LOOSE or pair.moved
        if loose and launch.state in DIFFERS and launch.a and launch.a.step in agreed:
            result += [
                LaunchComparison(launch.a, None, "structural", "unknown"),
                LaunchComparison(None, launch.b, "structural", "unknown"),
            ]
        else:
            result.append(launch)
    return result


def _blamed(
    launches: Sequence[LaunchComparison], nodes_a: Sequence[Node], nodes_b: Sequence[Node]
) -> Iterator[LaunchComparison]:
    matched = [(x.a.step, x.b.step) for x in launches if x.a and x.b]
    states_a, states_b = {}, {}
    for launch in launches:
        for tensor in launch.results:
            if launch.a and launch.b and tensor.state != "unknown":
                slot_a = nodes_a[launch.a.step].slots.get(tensor.a["arg"])
                slot_b = nodes_b[launch.b.step].slots.get(tensor.b["arg"])
                if slot_a is not None:
                    states_a[Source(launch.a.step, slot_a)] = tensor.state
                if slot_b is not None:
                    states_b[Source(launch.b.step, slot_b)] = tensor.state
    run_a = Run(nodes_a, dict(matched), states_a)
    run_b = Run(nodes_b, {theirs: ours for ours, theirs in matched}, states_b)
    for launch in launches:
        yield judge(launch, run_a, run_b) if launch.matched else launch


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
