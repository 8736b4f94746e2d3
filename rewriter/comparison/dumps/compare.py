"""Compares two dumps: pairs their launches, and finds the first one that went wrong.

Saved tensors are read block by block, in the order of the run, and only measurements are kept: the
tensors may be larger than memory. The rows of the events are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rewriter.comparison.dumps import blame, precision, values
from rewriter.comparison.dumps.blame import worst
from rewriter.comparison.dumps.pairing import (
    left_out,
    pair_outputs,
    pair_reads,
    pair_results,
    pair_untouched,
    with_views,
)
from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import (
    Comparison,
    LaunchComparison,
    Metrics,
    RunComparison,
    TensorComparison,
)
from rewriter.comparison.dumps.values import RecordedValue
from rewriter.core.align import Pair, align
from rewriter.core.errors import RewriterError
from rewriter.core.text import some
from rewriter.dump import launched
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.document_files import corrupt
from rewriter.dump.launched import OUTPUTS
from rewriter.dump.names import KEPT
from rewriter.dump.reading import Dump, RunDump, open_dump
from rewriter.dump.rows import TensorRow, ValueRow
from rewriter.execution.dumped_wrappers import flow_of
from rewriter.instrumentation.matching import matches
from rewriter.locate.names import canonical

Progress = Callable[[int, int], None]

_NAMED = 4  # outputs named in a sentence


def compare(
    a: str | Path | Dump,
    b: str | Path | Dump,
    *,
    tolerances: Tolerances | None = None,
    kernels: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two dumps launch by launch; b is what is expected.

    `a` and `b` may be dumps, single ranks of one, or single runs (`DUMP/rank0/run3`). The default
    `tolerances` are those of `torch.testing.assert_close`. `kernels` are patterns: only launches of
    matching kernels are compared. `progress` is called with the number of launches of `a` that are
    done, up to their total, and with that total.

    Raises `RewriterError` if a path is not a dump or is damaged, or if the two dumps have nothing
    in common that could be compared.
    """
    a, b = (dump if isinstance(dump, Dump) else open_dump(dump) for dump in (a, b))
    tolerances = tolerances or Tolerances()
    patterns = None if kernels is None else tuple(kernels)
    pairs = _pair_runs(a.runs, b.runs)
    total, done = _count(pairs), itertools.count(1)

    def report() -> None:
        if progress:
            progress(next(done), total)

    unpaired = [f"A {x.name}" for x, y in pairs if x and not y]
    unpaired += [f"B {y.name}" for x, y in pairs if y and not x]
    cut = [f"{side} {run.name}" for side, of in (("A", a), ("B", b)) for run in of.runs if run.cut]
    compared = (compare_runs(x, y, tolerances, patterns, report) for x, y in pairs if x and y)
    runs = tuple(blame.between_calls(compared))
    paths, manifests = (a.path, b.path), (a.manifest, b.manifest)
    comparison = Comparison(*paths, *manifests, runs, tuple(unpaired), tuple(cut))
    _require_common(comparison)
    return comparison


def count_launches(a: Dump, b: Dump) -> int:
    """The number of launches of `a` that `compare` goes through."""
    return _count(_pair_runs(a.runs, b.runs))


def _count(pairs: Iterable[tuple[RunDump | None, RunDump | None]]) -> int:
    return sum(step.launch is not None for x, y in pairs if x and y for step in x.steps)


def _pair_runs(
    a: Sequence[RunDump], b: Sequence[RunDump]
) -> list[tuple[RunDump | None, RunDump | None]]:
    """Pair calls of one wrapper by their order; wrappers by name, or else by what they launch."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    # One rank may be compared with another one, but several ranks only with the same ranks.
    ranked = any(len({run.rank for run in runs}) > 1 for runs in (a, b))
    # Wrappers for another device have other names, but the same order.
    names = [list(dict.fromkeys(run.artifact for run in runs)) for runs in (a, b)]
    by_order = set(names[0]) != set(names[1])
    sides = [(a, names[0]), (b, names[1])]
    starts = [_starts(x, ranked, known if by_order else sorted(known)) for x, known in sides]
    # The first process of a program does not correspond to its second one.
    same = set(starts[0].values()) == set(starts[1].values())
    keys = [
        [_run_keys(run, ranked, start[run.name][2] if same else 0) for run in runs]
        for runs, start in zip((a, b), starts, strict=True)
    ]
    pairs = align(*keys)
    return [(None if i is None else a[i], None if j is None else b[j]) for i, j, *_ in pairs]


def _starts(
    runs: Sequence[RunDump], ranked: bool, wrappers: Sequence[str]
) -> dict[str, tuple[int, int, int]]:
    """The rank and wrapper of each run, and the number of its process among those with both."""
    processes: dict[tuple[int, int], list[object]] = {}
    starts = {}
    for run in runs:
        which = (run.rank if ranked else 0, wrappers.index(run.artifact))
        known = processes.setdefault(which, [])
        if (pid := run.facts.pid) not in known:
            known.append(pid)
        starts[run.name] = (*which, known.index(pid))
    return starts


def _run_keys(run: RunDump, ranked: bool, start: int) -> tuple[Hashable, ...]:
    rank = (run.rank if ranked else 0, start)
    kernels = tuple(step.kernel for step in run.steps)
    names = tuple(map(canonical, kernels))
    return (
        (rank, run.artifact, kernels),
        (rank, kernels),
        (rank, names),
        (rank, frozenset(names)),
        (rank, run.artifact),
        rank,
    )


@dataclass(frozen=True)
class _Both:
    """One call of a wrapper in both dumps, and its steps."""

    a: RunDump
    b: RunDump
    flow_a: Flow
    flow_b: Flow

    @cached_property
    def is_same_code(self) -> bool:
        """Whether both wrappers launch the same kernels, as far as their names tell."""
        a, b = ([row.kernel for row in run.table.values()] for run in (self.a, self.b))
        return a == b

    def unwritten(self, node: FlowNode, row: ValueRow) -> str:
        """Why a value that a step reads is known never to have been written: by the operator that
        returned it, or by the one that reads it, as the seed of an attention without dropout.
        Empty if it is not."""
        if not isinstance(row, TensorRow):
            return ""
        if node.place.is_inputs:
            return self._unwritten_inputs.get(row.arg, "")
        if row.role == "in" and (why := values.left_unwritten(node.place.kernel, row)):
            return why
        maker = node.writer(row.arg)
        place = None if maker is None else self.flow_a.nodes[maker.step].place
        return "" if place is None else values.left_unwritten(place.kernel, row)

    @cached_property
    def _unwritten_inputs(self) -> dict[str, str]:
        """By the names of inputs of the call, as `unwritten`."""
        found: dict[str, str] = {}
        for node in self.flow_a.nodes:
            if node.step.launch is None or not values.left_some_unwritten(node.place.kernel):
                continue
            for row in launched.tensors(self.flow_a.rows(node)):
                if row.role == "in" and (why := values.left_unwritten(node.place.kernel, row)):
                    found[row.arg] = why
        return found


def compare_runs(
    a: RunDump,
    b: RunDump,
    tolerances: Tolerances,
    patterns: Sequence[str] | None = None,
    report: Callable[[], None] = lambda: None,
) -> RunComparison:
    """Compare two calls of a wrapper; `report` is called after each launch of `a`."""
    flow_a, flow_b = flow_of(a), flow_of(b)
    nodes_a, nodes_b = flow_a.nodes, flow_b.nodes
    pairs = align([node.keys for node in nodes_a], [node.keys for node in nodes_b])
    both = _Both(a, b, flow_a, flow_b)
    unread = [_compare(both, pair, tolerances, patterns) for pair in pairs]
    measured = _measured(both, unread)
    launches = []
    for comparison in unread:
        launches.append(launch := _finished(comparison, measured))
        # Inputs and outputs are not launches; launches of B alone are not in the total.
        if launch.a and launch.a.launch is not None:
            report()
    launches = list(blame.without_false_pairs(launches, pairs, nodes_a))
    explained = precision.explain(launches, nodes_a, tolerances)
    judged = list(blame.judge(explained, nodes_a, nodes_b))
    if explained == launches:  # otherwise each launch was judged by its effect on the error
        judged = blame.trace_back(judged, nodes_a)
    return RunComparison(a.name, b.name, tuple(judged))


def _measured(both: _Both, launches: Iterable[LaunchComparison]) -> Iterator[Metrics]:
    """The metrics of all values of these launches that both dumps saved, in order. Files are read
    ahead of the value that is next, and have to have as many elements as their rows say."""
    both_saved = (x for launch in launches for x in launch.tensors if x.basis == "tensors")
    saved = [(*x.tensors, x.tolerance) for x in both_saved if x.tensors and x.tolerance]
    if not saved:  # then torch is not needed
        return
    from rewriter.comparison.dumps.tensors import compare_many

    files = ((both.a.path / x.file, both.b.path / y.file, allowed) for x, y, allowed in saved)
    for (row, *_), metrics in zip(saved, compare_many(files), strict=True):
        if metrics.numel != row.size:
            problem = f"it holds {metrics.numel} elements, the events say {list(row.shape)}"
            raise corrupt(both.a.path / row.file, problem)
        yield metrics


def _finished(launch: LaunchComparison, measured: Iterator[Metrics]) -> LaunchComparison:
    """A launch with the next metrics from `measured`."""
    if not launch.matched:
        return launch

    def finished(tensors: Iterable[TensorComparison]) -> tuple[TensorComparison, ...]:
        return tuple(
            values.finish(x, next(measured)) if x.basis == "tensors" else x for x in tensors
        )

    reads, results = finished(launch.reads), finished(launch.results)
    # An argument that is only read is mentioned if it was equal before, and is not any more.
    equal = {tensor.name for tensor in reads if tensor.state == "equal"}
    results = tuple(x for x in results if x.written or (x.state != "equal" and x.name in equal))
    inputs = worst(tensor.state for tensor in reads)
    is_outputs = launch.place.kernel == OUTPUTS
    state = inputs if is_outputs else worst(tensor.state for tensor in results)
    return replace(launch, state=state, inputs=inputs, reads=reads, results=results)


def _compare(
    both: _Both, pair: Pair, tolerances: Tolerances, patterns: Sequence[str] | None
) -> LaunchComparison:
    """Pair the values of two launches, and compare them without reading what was saved."""
    x = None if pair.a is None else both.flow_a.nodes[pair.a]
    y = None if pair.b is None else both.flow_b.nodes[pair.b]
    if x is None or y is None:
        return blame.alone(x.place if x else None, y.place if y else None)
    kernel = x.place.kernel
    result = LaunchComparison(x.place, y.place, "unknown", "unknown", moved=pair.moved)
    if patterns is not None and x.place.launch is not None and not matches(kernel, patterns):
        return result

    is_rank = tolerances.scaled
    names = both.a.names.inputs if is_rank and x.place.is_inputs else {}
    kept = {name for name, known in names.items() if known.kind in KEPT}  # of the model
    # Ranks measure which code is fastest, and may pad the same product differently; not what they
    # return, or exchange with each other.
    is_free = x.place.launch is not None and x.place.kind != "collective"

    def compared(rows: Iterable[tuple[ValueRow, ValueRow]]) -> tuple[TensorComparison, ...]:
        return tuple(
            values.compare(
                kernel,
                RecordedValue(row, both.a),
                RecordedValue(other, both.b),
                tolerances,
                unwritten=both.unwritten(x, row),
                exactly=row.arg in kept,
                chosen=is_rank and is_free and not both.is_same_code,
            )
            for row, other in rows
        )

    if kernel == OUTPUTS:
        paired = pair_outputs(x.returned, y.returned)
        missing = left_out(x.returned, y.returned, paired)
        reasons = (f"not compared: {some(missing, _NAMED)}",) if missing else ()
        return replace(result, reads=compared(paired), reasons=reasons)
    rows_a, rows_b = both.flow_a.rows(x), both.flow_b.rows(y)
    same = canonical(kernel) == canonical(y.place.kernel)
    carried = bool(x.unread) != bool(y.unread)
    written, *left = pair_results(rows_a, rows_b, same_kernel=same)
    unmatched = tuple(
        f"{side} {row.arg}" for side, rest in zip("AB", left, strict=True) for row in rest
    )
    read = with_views(pair_reads(rows_a, rows_b, carried=carried), x.views, y.views)
    reads = compared(read) if same else ()
    results = compared([*written, *pair_untouched(rows_a, rows_b)])
    return replace(result, reads=reads, results=results, unmatched=unmatched)


def _require_common(comparison: Comparison) -> None:
    launches = [launch for launch in comparison.launches if launch.matched]
    if not any(launch.a and launch.a.launch is not None for launch in launches):
        raise RewriterError(
            "nothing-in-common",
            f"{comparison.a} and {comparison.b} have no launch in common",
            hint="Expected dumps of one model; `rewriter diff` of their two artifacts shows what "
            "they launch.",
        )
    behind = (x for x in launches if x.a and not x.a.is_inputs)
    if not any(tensor.state != "unknown" for launch in behind for tensor in launch.tensors):
        raise RewriterError(
            "nothing-to-compare",
            f"{comparison.a} and {comparison.b} hold no values that could be compared",
            hint="Run both with --probe save (or print, or hash), with the same --args and --when.",
        )
