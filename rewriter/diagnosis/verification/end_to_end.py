"""Compares the outputs of a call with the whole graph, evaluated from the inputs of the call.

Even if each launch computes what it claims, outputs can be wrong: a launch is missing, or gets
another value than it should. So the graph is evaluated as a whole, in float64 with rounding bounds,
and compared with what the call returned. If they differ, `culprit.py` looks for the launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rewriter.diagnosis.verification import calls, functional, received, threads
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, exact
from rewriter.diagnosis.verification.call_results import (
    CallResult,
    CallResults,
    Returned,
    unwritten_places,
)
from rewriter.diagnosis.verification.culprit import ByLaunch, Culprit, CulpritSearch
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.given_graphs import GivenGraphs, graph_text
from rewriter.diagnosis.verification.graph_types import graph_sizes, tensor_type
from rewriter.diagnosis.verification.judge import compare, compare_node, value_of
from rewriter.diagnosis.verification.types import ANYTHING, Checked, LaunchCheck, node_of
from rewriter.dump import dataflow, launched
from rewriter.dump.dataflow import Flow, FlowNode, NoResult
from rewriter.dump.reading import RunDump, open_dump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of
from rewriter.model_names.graph import FxGraph, parse_inlined

_MOST = 1 << 27  # elements of all nodes of a graph
_UNNAMED = "proxy_executor_call_"  # an operator of which a C++ wrapper only has the number


@dataclass(frozen=True)
class CallCheck:
    """The outputs of one call, and inputs that it updates, each with the node that it should be: as
    a whole it is wrong if no launch writes a part of it. `reason` says why some or all were not
    checked, `missing` how many. `culprit` is the launch where it begins, if that is known."""

    run: str
    artifact: str
    outputs: tuple[Checked, ...] = ()
    reason: str = ""
    culprit: Culprit | None = None
    missing: int = 0

    @classmethod
    def without(cls, run: RunDump, reason: str) -> CallCheck:
        """Of a call of which no output was checked."""
        last = dataflow.outputs(flow_of(run).nodes)
        returned = () if last is None else last.returned
        missing = sum(isinstance(output, TensorRow) or not output.is_known for output in returned)
        return cls(run.name, run.artifact, reason=reason, missing=missing)

    @property
    def wrong(self) -> tuple[Checked, ...]:
        return tuple(output for output in self.outputs if not output.agrees)


def check_outputs(
    dump: Path, checks: Sequence[LaunchCheck] = (), given: GivenGraphs | None = None
) -> tuple[CallCheck, ...]:
    """Check what each call of a dump returned. `checks` are the results of checking the launches,
    `given` the graphs of wrappers for which the dump has none."""
    runs = open_dump(dump).runs
    return tuple(threads.for_each(runs, lambda run: [_check(run, checks, given)]))


def _check(run: RunDump, checks: Sequence[LaunchCheck], given: GivenGraphs | None) -> CallCheck:
    text = graph_text(run, wrapper_of(run), given)
    facts = functional.schemas(run), functional.changed_by(run)
    graph = functional.read(text, *facts)
    if graph is None:
        return CallCheck.without(run, "its graph is not known")
    sizes = graph_sizes(graph, run.inputs)
    if graph.updates:
        return CallCheck.without(run, "its graph updates values in place")
    kinds = (tensor_type(node.type, sizes) for node in graph.nodes.values() if node.type)
    if sum(kind.numel or 0 for kind in kinds if kind is not None) > _MOST:
        return CallCheck.without(run, "its graph is too large to be evaluated whole")
    flow = flow_of(run)
    try:
        known: dict[str, Bounded] = {
            row.arg: exact(received.load(run, row))
            for row in launched.tensors(run.inputs)
            if row.arg in graph.types
        }
        known |= _attributes(run, graph, flow) | _own_results(run, graph, checks)
    except UncheckedError as error:
        return CallCheck.without(run, str(error))
    evaluator = Evaluator(graph, known, sizes, functional.subgraphs(text, *facts))
    last = dataflow.outputs(flow.nodes)
    if last is None or len(last.returned) != len(graph.outputs):
        return CallCheck.without(run, "what it returned was not recorded")
    results = CallResults(run, flow, last)
    own: ByLaunch = {(x.launch, x.iteration): x for x in checks if x.run == run.name}
    found = _outputs(results, last, graph, evaluator, own)
    if not_called := tuple(_not_called(run, text, graph)):
        return replace(found, outputs=(*found.outputs, *not_called))
    if not found.wrong:
        return found
    search = CulpritSearch(results, graph, evaluator, own, found.wrong)
    return replace(found, culprit=search.culprit())


def _not_called(run: RunDump, text: str, graph: FxGraph) -> Iterator[Checked]:
    """What operators of the program should update, of which the wrapper has fewer calls than its
    graph `text`. A call that is there for what it writes is never left out, merged, or fused."""
    wrapper, read = wrapper_of(run), parse_inlined(text)
    if wrapper is None or read is None or wrapper.unrecognised:
        return
    launched = Counter(launch.kernel for launch in wrapper.located.launches)
    if any(kernel.startswith(_UNNAMED) for kernel in launched):
        return
    for node in (node for node in read.nodes.values() if node.name in read.updates):
        path = node.call.partition("(")[0]
        launched[f"torch.ops.{path}"] -= 1
        if calls.is_unregistered(path) and launched[f"torch.ops.{path}"] < 0:
            updated = next((x for x in node.reads if x in graph.finals), node.name)
            problem = f"no launch calls {path}, which updates it"
            yield Checked.as_a_whole(updated, node.statement, problem)


def _attributes(run: RunDump, graph: FxGraph, flow: Flow) -> dict[str, Bounded]:
    """The weights of a package, as the first launch that reads each of them received it."""
    found: dict[str, Bounded] = {}
    written = {*flow.unrecorded}
    for step in run.steps:
        rows, facts = run.rows(step), run.launch_row(step.launch)
        for variable, row in received.given(rows).items():
            name = launched.buffer_of(facts, variable)  # a branch has a variable of its own
            kind = tensor_type(graph.nodes[name].type, {}) if name in graph.attributes else None
            if kind is None or name in found or name in written or kind.numel != row.size:
                continue
            tensor = received.load(run, row)
            found[name] = exact(received.layouts(tensor, row, kind.contiguous(), viewed=True)[0])
        written |= {launched.buffer_of(facts, name) for name in received.written(rows)}
    return found


def _own_results(run: RunDump, graph: FxGraph, checks: Sequence[LaunchCheck]) -> dict[str, Bounded]:
    """The results of operators that are not registered here, as they were recorded."""
    found = {}
    steps = {step.which: step for step in run.steps}
    for check in checks:
        step = steps.get((check.launch, check.iteration))
        if check.run != run.name or check.route != "arguments" or step is None:
            continue
        written = received.written(run.rows(step))
        for result in check.results:
            node = node_of(result.claim)
            is_own = result.comparison.is_unknown and graph.statement(node) == result.claim
            if is_own and result.arg in written and node in graph.nodes:
                found[node] = exact(received.load(run, written[result.arg]))
    return found


def _outputs(
    results: CallResults, last: FlowNode, graph: FxGraph, evaluator: Evaluator, checks: ByLaunch
) -> CallCheck:
    """Check what the call returns, and what it leaves in inputs that the graph updates, and in
    weights that launches write."""
    run, found, reasons = results.run, list[Checked](), list[str]()
    written = {x: x for x in sorted(graph.attributes) if results.is_written(x)}
    left_in = {**written, **graph.finals}
    for what, node in [*left_in.items(), *zip(last.returned, graph.outputs, strict=True)]:
        try:
            left: CallResult | None = None
            if isinstance(what, TensorRow) and node in graph.nodes:
                node = _in_memory(what, node, graph, evaluator)
                left = results.returned(what, evaluator.type_of(node))
            elif isinstance(what, str):
                left = results.of_input(what, evaluator.type_of(node))
            if left is not None:
                checked = _left(left, node, evaluator)
                row = what if isinstance(what, TensorRow) and checked.agrees else None
                if row is not None and (view := results.as_returned(row)) is not None:
                    seen = _as_written(run, view, graph.base(node), evaluator, checks)
                    checked = _viewed(view, checked, node, seen or evaluator)
                if checked.comparison.is_unknown and not evaluator.is_undefined(node):
                    reasons.append(f"{left.row.arg}: {ANYTHING}")
                found.append(checked)
            elif isinstance(what, NoResult) and node in graph.nodes:
                found += _never_written(run, what, node, evaluator)
        except UncheckedError as error:
            reasons.append(str(error))
    why = next(iter(reasons), "")
    return CallCheck(run.name, run.artifact, tuple(found), why, missing=len(reasons))


def _in_memory(row: TensorRow, node: str, graph: FxGraph, evaluator: Evaluator) -> str:
    """The node that was written to the memory of an output: its base, if it is a view of that as
    another type."""
    base = graph.base(node)
    kind, held = evaluator.type_of(node), evaluator.type_of(base)
    is_other = kind is not None and held is not None and kind.dtype != held.dtype
    return base if is_other and held and received.dtype_of(row) == held.dtype else node


def _left(left: CallResult, node: str, evaluator: Evaluator) -> Checked:
    """Compare a tensor that a call leaves with the node that it should be."""
    row, kind, problem = left.row, evaluator.type_of(node), ""
    if kind is not None and received.dtype_of(row) not in (None, kind.dtype):
        problem = f"it is {row.dtype}, not {str(kind.dtype).removeprefix('torch.')}"
    elif (wanted := left.unwritten) is not None:
        if evaluator.is_undefined(node):
            bound = value_of(node, evaluator).bound()
            wanted = wanted & torch.isfinite(bound).reshape(wanted.shape)
        problem = unwritten_places(wanted) if bool(wanted.any()) else ""
    if problem:
        return Checked.as_a_whole(row.arg, evaluator.statement(node), problem)
    comparison = compare_node(left.tensor, row, node, evaluator, viewed=True)
    return Checked(row.arg, evaluator.statement(node), comparison)


def _as_written(
    run: RunDump, returned: Returned, base: str, evaluator: Evaluator, checks: ByLaunch
) -> Evaluator | None:
    """What evaluates the views of a node by what a launch wrote, where that was checked to be the
    node; else `None`. However far rounding may have got there, it adds nothing to them."""
    check, kind = checks.get(returned.step.which), evaluator.type_of(base)
    if check is None or check.outcome != "agrees" or kind is None:
        return None
    made = [node_of(x.claim) for x in check.results if x.arg == returned.written.arg]
    if check.route == "operator" and len(check.results) == 1:  # its claim is the launch itself
        made = [*map(node_of, check.computes)]
    if made != [base] or kind.shape != returned.written.shape:
        return None
    return evaluator.starting_with({base: exact(received.load(run, returned.written))})


def _viewed(returned: Returned, right: Checked, node: str, evaluator: Evaluator) -> Checked:
    """The check of the view that is returned of a right tensor."""
    expected = value_of(node, evaluator)
    is_alike = returned.tensor.shape == expected.value.shape
    if is_alike and compare(returned.tensor, expected).agrees:
        return right
    problem = f"the call returns {returned.view}, which is another view than the graph returns"
    return Checked.as_a_whole(right.arg, right.claim, problem)


def _never_written(
    run: RunDump, what: NoResult, node: str, evaluator: Evaluator
) -> Iterator[Checked]:
    """An output that by the text of the wrapper nothing writes, though the graph gives a value."""
    if what.is_known or not bool(torch.isfinite(value_of(node, evaluator).bound()).any()):
        return
    wrapper = wrapper_of(run)
    entries = () if wrapper is None else wrapper.located.entries
    returned = (zip(x.outputs, x.hazards, strict=False) for x in entries)
    if not any((what.name, "unwritten") in pairs for pairs in returned):
        raise UncheckedError(what.text)
    yield Checked.as_a_whole(what.name, evaluator.statement(node), "nothing is written by a launch")
