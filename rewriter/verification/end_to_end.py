"""Compares the outputs of a call with the whole graph, evaluated from the inputs of the call.

Even if each launch computes what it claims, outputs can be wrong: a launch is missing, or gets
another value than it should. So the graph is evaluated as a whole, in float64 with rounding bounds,
and compared with what the call returned. If they differ, this module looks for the first launch
whose results are not the nodes that they claim to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.naming.graph import FxGraph
from rewriter.dump import dataflow
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.reading import RunDump, RunStep, open_dump
from rewriter.dump.rows import ScalarRow, TensorRow, renamed
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.verification import functional, received
from rewriter.verification.bounded import Bounded, UncheckedError, exact
from rewriter.verification.evaluate import Evaluator
from rewriter.verification.given_graphs import GivenGraphs, graph_text
from rewriter.verification.graph_types import graph_sizes, tensor_type
from rewriter.verification.judge import compare_recorded
from rewriter.verification.types import Comparison, LaunchCheck

_MOST = 1 << 27  # elements of all nodes of a graph


@dataclass(frozen=True)
class OutputCheck:
    """An output of a call, or an input that it updates: its variable, the node that it should be,
    and how it differs from that node."""

    name: str
    claim: str
    comparison: Comparison


@dataclass(frozen=True)
class CallCheck:
    """The outputs of one call. `reason` says why some or all were not checked. `first` is the first
    launch whose result is not the node that it claims to be, and `of` that result."""

    run: str
    artifact: str
    outputs: tuple[OutputCheck, ...]
    reason: str = ""
    first: LaunchCheck | None = None
    of: OutputCheck | None = None

    @property
    def wrong(self) -> tuple[OutputCheck, ...]:
        return tuple(one for one in self.outputs if not one.comparison.agrees)


def check_outputs(
    dump: Path, checks: Sequence[LaunchCheck] = (), given: GivenGraphs | None = None
) -> tuple[CallCheck, ...]:
    """Check what each call of a dump returned. `checks` are the results of checking the launches,
    `given` the graphs of wrappers for which the dump has none."""
    return tuple(_check(run, checks, given) for run in open_dump(dump).runs)


def _check(run: RunDump, checks: Sequence[LaunchCheck], given: GivenGraphs | None) -> CallCheck:
    graph = functional.read(run, graph_text(run, wrapper_of(run), given))
    if graph is None:
        return CallCheck(run.name, run.artifact, (), "its graph is not known")
    rows = [row for row in run.inputs if isinstance(row, (TensorRow, ScalarRow))]
    sizes = graph_sizes(graph, rows)
    if graph.updates:
        return CallCheck(run.name, run.artifact, (), "its graph updates values in place")
    if _elements(graph, sizes) > _MOST:
        return CallCheck(run.name, run.artifact, (), "its graph is too large to be evaluated whole")
    try:
        known: dict[str, Bounded] = {
            row.arg: exact(received.load(run, row))
            for row in rows
            if isinstance(row, TensorRow) and row.arg in graph.types
        }
    except UncheckedError as error:
        return CallCheck(run.name, run.artifact, (), str(error))
    evaluator = Evaluator(graph, known, sizes)
    outputs, reason = _outputs(run, graph, evaluator)
    found = CallCheck(run.name, run.artifact, tuple(outputs), reason)
    if not found.wrong:
        return found
    first, of = _first(run, graph, evaluator, checks)
    return CallCheck(run.name, run.artifact, tuple(outputs), reason, first, of)


def _elements(graph: FxGraph, sizes: Mapping[str, int]) -> int:
    kinds = (tensor_type(node.type, sizes) for node in graph.nodes.values() if node.type)
    return sum(kind.numel or 0 for kind in kinds if kind is not None)


def _outputs(run: RunDump, graph: FxGraph, evaluator: Evaluator) -> tuple[list[OutputCheck], str]:
    """Check what the call returns, and what it leaves in inputs that the graph updates."""
    nodes = dataflow.trace(run)
    last = dataflow.outputs(nodes)
    if last is None or len(last.returned) != len(graph.outputs):
        return [], "what it returned was not recorded"
    left = _inputs_left(run, nodes)
    pairs = [(left[name], node) for name, node in graph.finals.items() if name in left]
    found, reasons = [], []
    for row, node in (*pairs, *zip(last.returned, graph.outputs, strict=True)):
        if not isinstance(row, TensorRow) or node not in graph.nodes:
            continue
        try:
            comparison = _compared(run, row, node, evaluator)
        except UncheckedError as error:
            reasons.append(str(error))
            continue
        name = dataflow.output_variable(row.arg) or row.arg
        found.append(OutputCheck(name, graph.statement(node), comparison))
    return found, next(iter(reasons), "")


def _inputs_left(run: RunDump, nodes: Sequence[FlowNode]) -> dict[str, TensorRow]:
    """What a call leaves in its inputs, by name: as the last launch wrote it, or as it was given.
    Inputs of which launches write parts are left out."""
    left = {row.arg: row for row in run.inputs if isinstance(row, TensorRow)}
    last = dataflow.outputs(nodes)
    for node in nodes:
        if node.step.launch is None or last is None or node.place.scope != last.place.scope:
            continue
        facts = run.launch_row(node.step.launch)
        for name, row in received.written(run.rows(node.step)).items():
            root = dataflow.buffer_of(facts, name)
            if root in left and row.size == left[root].size:
                left[root] = renamed(row, root)
            else:
                left.pop(root, None)
    return left


def _compared(run: RunDump, row: TensorRow, node: str, evaluator: Evaluator) -> Comparison:
    """Compare a recorded tensor with a node, in whichever layout they agree."""
    expected = evaluator.value(node)
    if not isinstance(expected, Bounded):
        raise UncheckedError(f"{node} is no tensor")
    got = received.load(run, row)
    return compare_recorded(got, row, expected, evaluator.type_of(node), viewed=True)


def _first(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, checks: Sequence[LaunchCheck]
) -> tuple[LaunchCheck | None, OutputCheck | None]:
    """The first launch whose result is not the node that its check took it for."""
    steps = {(step.launch, step.iteration): step for step in run.steps}
    launched = Counter(kernel for kernel, _ in {(x.kernel, x.launch) for x in run.steps})
    for check in checks:
        step = steps.get((check.launch, check.iteration))
        if check.run != run.name or step is None or check.route not in ("graph", "fragment"):
            continue
        if check.route == "fragment" and launched[check.kernel] > 1:
            continue  # the node names in the fragment are those of the kernel's first launch
        written = received.written(run.rows(step))
        for checked in check.results:
            node = checked.claim.partition(" = ")[0]
            row = written.get(checked.arg)
            if row is None or node not in graph.nodes:
                continue
            try:
                comparison = _compared(run, row, node, evaluator)
            except (UncheckedError, RuntimeError):
                continue
            if comparison.agrees:
                continue
            wrong = _received(run, graph, evaluator, step, node)
            if wrong is not None:
                by, output = wrong
                for other in checks:
                    if (other.run, other.launch, other.iteration) == (run.name, *by):
                        return other, output
            return check, OutputCheck(checked.arg, checked.claim, comparison)
    return None, None


def _received(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, step: RunStep, node: str
) -> tuple[tuple[int, int], OutputCheck] | None:
    """An input of a launch that is not the node it should be, to compute `node`; with the launch
    and iteration that wrote it."""
    flow = dataflow.Flow(run)
    given = received.given(run.rows(step))
    missing = {graph.base(name) for name in graph.nodes[node].reads} & graph.nodes.keys()
    wrong: list[tuple[TensorRow, str, Comparison]] = []
    for row in given.values():
        compared = []
        for name in sorted(missing):
            try:
                compared.append((name, _compared(run, row, name, evaluator)))
            except (UncheckedError, RuntimeError):
                continue
        agreeing = [name for name, one in compared if one.agrees]
        missing -= set(agreeing)
        if not agreeing and compared:
            wrong.append((row, *compared[0]))
    for row, name, comparison in wrong:
        sources = flow.nodes[step.position].given.get(row.arg, ())
        if name not in missing or len(sources) != 1:
            continue
        maker = flow.nodes[sources[0].step].step
        if maker.launch is not None:
            output = OutputCheck(row.arg, graph.statement(name), comparison)
            return (maker.launch, maker.iteration), output
    return None
