"""Compares the outputs of a call with the whole graph, evaluated from the inputs of the call.

Even if each launch computes what it claims, outputs can be wrong: a launch is missing, or gets
another value than it should. So the graph is evaluated as a whole, in float64 with rounding bounds,
and compared with what the call returned. If they differ, this module looks for the first launch
whose results are not the nodes that they claim to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rewriter.artifact.given_copies import given_copy
from rewriter.diagnosis.verification import calls, functional, received, threads
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.given_graphs import GivenGraphs, graph_text
from rewriter.diagnosis.verification.graph_types import graph_sizes, tensor_type
from rewriter.diagnosis.verification.judge import compare, compare_node, value_of
from rewriter.diagnosis.verification.left import CallResults, Left
from rewriter.diagnosis.verification.types import (
    ANYTHING,
    Checked,
    Comparison,
    LaunchCheck,
    node_of,
)
from rewriter.dump import dataflow, launched, saved
from rewriter.dump.dataflow import Flow, FlowNode, NoResult
from rewriter.dump.reading import RunDump, RunStep, open_dump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of
from rewriter.model_names.attribution import called
from rewriter.model_names.graph import FxGraph, parse_inlined

_MOST = 1 << 27  # elements of all nodes of a graph
_UNNAMED = "proxy_executor_call_"  # an operator of which a C++ wrapper only has the number


@dataclass(frozen=True)
class CallCheck:
    """The outputs of one call, and inputs that it updates, each with the node that it should be: as
    a whole it is wrong if no launch writes a part of it. `reason` says why some or all were not
    checked, `missing` how many. `first` is the first launch whose result is not the node that it
    claims to be, and `of` that result; or else `other` made a wrong value that this one reads, or
    the launch that computes `of` is missing, and `first` left what that reads, the node `holds`."""

    run: str
    artifact: str
    outputs: tuple[Checked, ...] = ()
    reason: str = ""
    first: LaunchCheck | None = None
    of: Checked | None = None
    other: LaunchCheck | None = None
    holds: str = ""
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


# The launch, and what of it, or of what it is given, is wrong.
_Culprit = tuple[LaunchCheck, Checked]
_Known = Mapping[tuple[int, int], LaunchCheck]  # by launch and iteration


def check_outputs(
    dump: Path, checks: Sequence[LaunchCheck] = (), given: GivenGraphs | None = None
) -> tuple[CallCheck, ...]:
    """Check what each call of a dump returned. `checks` are the results of checking the launches,
    `given` the graphs of wrappers for which the dump has none."""
    runs = open_dump(dump).runs
    return tuple(threads.for_each(runs, lambda run: [_check(run, checks, given)]))


def _check(run: RunDump, checks: Sequence[LaunchCheck], given: GivenGraphs | None) -> CallCheck:
    text = graph_text(run, wrapper_of(run), given)
    graph = functional.read(text, functional.schemas(run), functional.changed_by(run))
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
    evaluator = Evaluator(graph, known, sizes)
    last = dataflow.outputs(flow.nodes)
    if last is None or len(last.returned) != len(graph.outputs):
        return CallCheck.without(run, "what it returned was not recorded")
    results = CallResults(run, flow, last)
    found = _outputs(results, last, graph, evaluator)
    if not_called := tuple(_not_called(run, text, graph)):
        return replace(found, outputs=(*found.outputs, *not_called))
    if not found.wrong:
        return found
    of_call = {(x.launch, x.iteration): x for x in checks if x.run == run.name}
    first, other = _lost(results, graph, found.wrong, of_call), None
    holds = ""
    if first is None:
        first = _first(run, graph, evaluator, of_call, flow)
        first = first or _left_alone(results, found.wrong, of_call)
        if first is not None and (
            before := _before(run, graph, evaluator, first[0], of_call, flow)
        ):
            should_be = _should_be(run, graph, evaluator, *before)
            first, other = (first, before[0]) if should_be is None else (should_be, None)
        elif first is not None:
            first, holds = _left_out(run, graph, evaluator, first, of_call, flow)
    if first is not None and _follows_unrecorded(results, first[0]):
        first = None
    fed = _fed_unwritten(results, of_call)
    if fed is not None and (first is None or fed[0].launch <= first[0].launch):
        first, other, holds = fed, None, ""
    if first is None:
        return found
    return replace(found, first=first[0], of=first[1], other=other, holds=holds)


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
            yield _wrong(updated, node.statement, f"no launch calls {path}, which updates it")


def _attributes(run: RunDump, graph: FxGraph, flow: Flow) -> dict[str, Bounded]:
    """The weights of a package, as the first launch that reads each of them received it."""
    found: dict[str, Bounded] = {}
    written = {*flow.unrecorded}
    for step in run.steps:
        rows = run.rows(step)
        for name, row in received.given(rows).items():
            kind = tensor_type(graph.nodes[name].type, {}) if name in graph.attributes else None
            if kind is None or name in found or name in written or kind.numel != row.size:
                continue
            tensor = received.load(run, row)
            found[name] = exact(received.layouts(tensor, row, kind.contiguous(), viewed=True)[0])
        written |= received.written(rows).keys()
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
    results: CallResults, last: FlowNode, graph: FxGraph, evaluator: Evaluator
) -> CallCheck:
    """Check what the call returns, and what it leaves in inputs that the graph updates."""
    run, found, reasons = results.run, list[Checked](), list[str]()
    for what, node in [*graph.finals.items(), *zip(last.returned, graph.outputs, strict=True)]:
        try:
            left: Left | None = None
            if isinstance(what, TensorRow) and node in graph.nodes:
                left = results.returned(what, evaluator.type_of(node))
            elif isinstance(what, str):
                left = results.of_input(what)
            if left is not None:
                checked = _left(left, node, evaluator)
                if isinstance(what, TensorRow) and checked.agrees:
                    checked = _viewed(results, what, node, evaluator) or checked
                if checked.comparison.is_unknown and not evaluator.is_undefined(node):
                    reasons.append(f"{left.row.arg}: {ANYTHING}")
                found.append(checked)
            elif isinstance(what, NoResult) and node in graph.nodes:
                found += _never_written(run, what, node, evaluator)
        except UncheckedError as error:
            reasons.append(str(error))
    why = next(iter(reasons), "")
    return CallCheck(run.name, run.artifact, tuple(found), why, missing=len(reasons))


def _left(left: Left, node: str, evaluator: Evaluator) -> Checked:
    """Compare a tensor that a call leaves with the node that it should be."""
    row, kind, problem = left.row, evaluator.type_of(node), ""
    if kind is not None and received.dtype_of(row) not in (None, kind.dtype):
        problem = f"it is {row.dtype}, not {str(kind.dtype).removeprefix('torch.')}"
    elif (wanted := left.unwritten) is not None:
        if evaluator.is_undefined(node):
            bound = value_of(node, evaluator).bound()
            wanted = wanted & torch.isfinite(bound).reshape(wanted.shape)
        problem = _unwritten(wanted) if bool(wanted.any()) else ""
    if problem:
        return _wrong(row.arg, evaluator.statement(node), problem)
    comparison = compare_node(left.tensor, row, node, evaluator, viewed=True)
    return Checked(row.arg, evaluator.statement(node), comparison)


def _viewed(
    results: CallResults, row: TensorRow, node: str, evaluator: Evaluator
) -> Checked | None:
    """What is wrong with the view that is returned of a right tensor; `None` if nothing is."""
    if (returned := results.as_returned(row)) is None:
        return None
    view, tensor = returned
    expected = value_of(node, evaluator)
    if tensor.shape == expected.value.shape and compare(tensor, expected).agrees:
        return None
    name = dataflow.output_variable(row.arg)
    return _wrong(
        name,
        evaluator.statement(node),
        f"the call returns {view}, which is another view than the graph returns",
    )


def _wrong(name: str, claim: str, problem: str) -> Checked:
    """What is wrong as a whole."""
    return Checked(name, claim, Comparison(1, 1, why=problem))


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
    yield _wrong(what.name, evaluator.statement(node), "nothing is written by a launch")


def _unwritten(marked: torch.Tensor) -> str:
    """Which elements no launch writes, in words."""
    places = marked.reshape(-1).nonzero().reshape(-1)
    first, final = int(places[0]), int(places[-1])
    some = "elements" if final - first + 1 == places.numel() else "some of the elements"
    return f"{some} {first} to {final} of {marked.numel():,} are written by no launch"


def _compared(run: RunDump, row: TensorRow, node: str, evaluator: Evaluator) -> Comparison | None:
    """Compare a recorded tensor with a node, in any layout; `None` if that cannot be computed."""
    with suppress(UncheckedError, RuntimeError):
        return compare_node(received.load(run, row), row, node, evaluator, viewed=True)
    return None


def _first(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, known: _Known, flow: Flow
) -> _Culprit | None:
    """The first launch whose result is not the node that its check took it for."""
    steps = {step.which: step for step in run.steps}
    launched = Counter(kernel for kernel, _ in {(x.kernel, x.launch) for x in run.steps})
    for at, check in known.items():
        step = steps.get(at)
        if step is None or check.route not in ("graph", "fragment"):
            continue
        if check.route == "fragment" and launched[check.kernel] > 1:
            continue  # the node names in the fragment are those of the kernel's first launch
        written = received.written(run.rows(step))
        for checked in check.results:
            node = node_of(checked.claim)
            row = written.get(checked.arg)
            if row is None or node not in graph.nodes:
                continue
            comparison = _compared(run, row, node, evaluator)
            if comparison is None or comparison.agrees:
                continue
            own = {node_of(statement) for statement in check.computes}
            wrong = _received(run, graph, evaluator, step, node, own, flow)
            if wrong is not None and (maker := known.get(wrong[0])) is not None:
                return maker, wrong[1]
            return check, replace(checked, comparison=comparison)
    return None


def _nodes(run: RunDump, graph: FxGraph, evaluator: Evaluator, row: TensorRow) -> set[str]:
    """The nodes and inputs of the graph that a recorded tensor is, each by its base."""
    found = set()
    for name in graph.types.keys() | graph.nodes.keys():
        if graph.base(name) not in found and _holds(run, row, name, evaluator):
            found.add(graph.base(name))
    return found


def _holds(run: RunDump, row: TensorRow, node: str, evaluator: Evaluator) -> bool:
    """Whether a recorded tensor is a node or an input of the graph, in any layout."""
    kind = evaluator.type_of(node)
    if kind is None or not kind.fits(row):
        return False
    comparison = _compared(run, row, node, evaluator)
    return comparison is not None and comparison.agrees and not comparison.is_unknown


def _before(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, check: LaunchCheck, known: _Known,
    flow: Flow,
) -> tuple[LaunchCheck, TensorRow] | None:  # fmt: skip
    """The first launch that was only checked by its own statement, which may be the wrong one, and
    that made what is no node of the graph; `check` was computed from that."""
    found, position = None, check.step
    while True:
        for source in flow.nodes[position].origins:
            step, row = flow.nodes[source.step].step, flow.origin(source)
            maker = None if step.launch is None else known.get((step.launch, step.iteration))
            is_saved = row is not None and saved.file_of(run.path, row) is not None
            if maker and row and is_saved and not _nodes(run, graph, evaluator, row):
                found = (maker, row) if maker.route in ("operator", "arguments") else found
                position = source.step
                break
        else:
            return found


def _should_be(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, check: LaunchCheck, row: TensorRow
) -> _Culprit | None:
    """The node that a launch calls the operator of, on what the node reads, if it made another
    value: its own statement is wrong."""
    wrapper, step = wrapper_of(run), run.step(check.launch, check.iteration)
    if wrapper is None or step is None or check.route != "operator":
        return None
    launch = next(x for x in wrapper.launches if x.index == check.launch)
    operators = called(replace(launch, args=launch.tensors))  # whatever its other arguments
    inputs = received.given(run.rows(step)).values()
    given = [_nodes(run, graph, evaluator, x) for x in inputs]
    all_given = set().union(*given)
    for node in graph.nodes.values():
        source, kind = graph.call_of(node), evaluator.type_of(node.name)
        if source is None or source.operator.rstrip("_") not in operators:
            continue
        reads = {graph.base(x) for x in source.reads if evaluator.type_of(x) is not None}
        is_call = reads <= all_given and all(reads & x for x in given)
        if is_call and kind is not None and kind.fits(row):
            comparison = _compared(run, row, node.name, evaluator)
            if comparison is not None and not comparison.agrees:
                return check, Checked(row.arg, graph.statement(node.name), comparison)
    return None


def _left_out(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, culprit: _Culprit, known: _Known, flow: Flow
) -> tuple[_Culprit, str]:
    """The launch before one that may be missing, with the node that it left: what is missing reads
    that. Else the culprit itself, and an empty string."""
    check, of = culprit
    if held := _argument_of(run, graph, evaluator, check, node_of(of.claim)):
        return culprit, held
    step = run.step(check.launch, check.iteration)
    if step is None or check.route != "operator" or check.outcome != "agrees":
        return culprit, ""
    given = _received(run, graph, evaluator, step, node_of(of.claim), set(), flow)
    maker = None if given is None else known.get(given[0])
    if given is None or maker is None:
        return culprit, ""
    held = _argument_of(run, graph, evaluator, maker, node_of(given[1].claim))
    return ((maker, given[1]), held) if held else (culprit, "")


def _argument_of(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, check: LaunchCheck, name: str
) -> str:
    """The argument of a node that a launch left, if no launch left the node itself; or empty."""
    left = {step.which: received.written(run.rows(step)).values() for step in run.steps}
    every = (row for rows in left.values() for row in rows)
    if name not in graph.nodes or any(_holds(run, row, name, evaluator) for row in every):
        return ""
    own = left.get((check.launch, check.iteration), ())
    read = sorted({graph.base(x) for x in graph.nodes[name].reads} & graph.nodes.keys())
    return next((x for x in read if any(_holds(run, row, x, evaluator) for row in own)), "")


def _follows_unrecorded(results: CallResults, check: LaunchCheck) -> bool:
    """Whether launches that were not recorded may have written what a launch was given, or what
    others computed that from."""
    waiting = [node for node in results.nodes if node.step.which == (check.launch, check.iteration)]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        facts = results.run.launch_row(node.step.launch)
        if {launched.buffer_of(facts, name) for name in node.given} & {*results.unrecorded}:
            return True
        further = {x.step for x in node.origins} - seen
        seen |= further
        waiting += [results.nodes[x] for x in further]
    return False


def _left_alone(results: CallResults, wrong: Sequence[Checked], known: _Known) -> _Culprit | None:
    """The launch that wrote a wrong result last, if that could not be checked, and all that it read
    was checked: its computation or its inputs differ."""
    for output in wrong:
        node = results.writers.get(output.arg)
        if output.problem or node is None or node.step.launch is None:
            continue
        check = known.get((node.step.launch, node.step.iteration))
        steps = [results.run.steps[x.step] for x in node.origins]
        made = [known.get((x.launch, x.iteration)) for x in steps if x.launch is not None]
        is_fed = all(check is not None and check.outcome == "agrees" for check in made)
        if check is None or not is_fed or check.outcome == "differs":
            continue
        facts = results.run.launch_row(check.launch)
        if output.arg not in {launched.buffer_of(facts, result.arg) for result in check.results}:
            return check, output
    return None


def _lost(
    results: CallResults, graph: FxGraph, wrong: Sequence[Checked], known: _Known
) -> _Culprit | None:
    """The launch that has to write a wrong result, and does not."""
    for output in wrong:
        found = _given_a_copy(results.run, output, known)
        if found := found or _misplaced(results, graph, output, known):
            return found
    return None


def _elsewhere(
    run: RunDump, output: Checked, known: _Known
) -> Iterator[tuple[LaunchCheck, tuple[str, ...]]]:
    """The launches that do not write a result, each with what it writes."""
    for check in known.values():
        step, facts = run.step(check.launch, check.iteration), run.launch_row(check.launch)
        written = () if step is None else tuple(received.written(run.rows(step)))
        if output.arg not in {launched.buffer_of(facts, name) for name in written}:
            yield check, written


def _given_a_copy(run: RunDump, output: Checked, known: _Known) -> _Culprit | None:
    """The launch that is given a copy of a result to write to."""
    wrapper = wrapper_of(run)
    copy = None if wrapper is None else given_copy(wrapper, output.arg)
    if copy is None or (check := known.get((copy[0].index, 0))) is None:
        return None
    return check, _wrong(output.arg, "", f"it only writes a copy, {copy[1].expr}")


def _misplaced(
    results: CallResults, graph: FxGraph, output: Checked, known: _Known
) -> _Culprit | None:
    """The launch that computes what the graph copies into an input, and writes it elsewhere, or a
    part of a result which nothing reads where it writes that."""
    elsewhere = list(_elsewhere(results.run, output, known))
    copied = f" = aten.copy_.default({output.arg}, "
    for check, _ in elsewhere:
        if any(copied in compute for compute in check.computes):
            return check, output
    whole = graph.nodes.get(node_of(output.claim)) if output.problem else None
    parts = {graph.base(name) for name in whole.reads} if whole is not None else set()
    read = {x.step for node in results.nodes for x in node.origins}
    for check, written in elsewhere:
        part = next((x for x in map(node_of, check.computes) if x in parts), "")
        if part and written and check.step not in read:
            is_in = f"{part}, which belongs there, is in {', '.join(written)}, and nothing"
            problem = f"{output.problem}: {is_in} reads that"
            return check, _wrong(output.arg, output.claim, problem)
    return None


def _fed_unwritten(results: CallResults, known: _Known) -> _Culprit | None:
    """The first launch that is given a buffer of which no launch wrote a part. It need not read
    that part, so this is only asked of a call that leaves something wrong."""
    for node in results.nodes:
        launch = node.step.launch
        check = None if launch is None else known.get((launch, node.step.iteration))
        if check is None:
            continue
        for name, unwritten in results.unwritten_inputs(node, check.launch):
            return check, _wrong(name, "", _unwritten(unwritten))
    return None


def _received(
    run: RunDump, graph: FxGraph, evaluator: Evaluator, step: RunStep, node: str, own: set[str],
    flow: Flow,
) -> tuple[tuple[int, int], Checked] | None:  # fmt: skip
    """An input of a launch that is not the node it should be, to compute `node`; with the launch
    and iteration that wrote it. `own` are nodes that the launch computes itself."""
    given = received.given(run.rows(step))
    read = graph.ancestors(node, lambda name: graph.base(name) in own)
    missing = {graph.base(x) for x in read} & graph.nodes.keys() - own
    wrong: list[tuple[TensorRow, str, Comparison]] = []
    for row in given.values():
        found = ((name, _compared(run, row, name, evaluator)) for name in sorted(missing))
        compared = [(name, comparison) for name, comparison in found if comparison is not None]
        agreeing = [name for name, comparison in compared if comparison.agrees]
        missing -= set(agreeing)
        if not agreeing and compared:
            wrong.append((row, *compared[0]))
    for row, name, comparison in wrong:
        sources = flow.nodes[step.position].given.get(row.arg, ())
        if name not in missing or len(sources) != 1:
            continue
        maker = flow.nodes[sources[0].step].step
        if maker.launch is not None:
            received_here = Checked(row.arg, graph.statement(name), comparison)
            return (maker.launch, maker.iteration), received_here
    return None
