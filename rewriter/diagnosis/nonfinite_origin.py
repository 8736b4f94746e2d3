"""Finds in a dump the step where the first NaN of a call appears, and which infinities it is from.

An infinity by itself is not a fault: attention masks use it. It is the cause of a NaN if the launch
that made the NaN read it, as far as the data flow shows, and a launch had computed it from finite
numbers (`rewriter.dump.infinities`). Values that `--allow` names are skipped.

A NaN that the model absorbs, as with `nan_to_num`, is no fault by itself either: no result of the
call has one. Nor is that of a step which overflows on purpose: `torch.amp.GradScaler` tries a large
factor, finds infinities or NaN in the gradients, skips the step and halves the factor.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.diagnosis.evidence import unrecorded
from rewriter.diagnosis.returned import inputs_written, outputs_of
from rewriter.diagnosis.verdict import NonFiniteState
from rewriter.dump import dataflow, infinities, launched
from rewriter.dump.allowed import Allowed
from rewriter.dump.dataflow import Flow, FlowNode, NoResult, ValueOrigin
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import EventRow, TensorRow
from rewriter.dump.uninitialised import defined_rows
from rewriter.execution.dumped_wrappers import are_writes_recorded, flow_of

_ANY_NAN = re.compile(rb'"nan":\s*[1-9]')
_ANY_INFINITY = re.compile(rb'"inf":\s*[1-9]')


@dataclass(frozen=True)
class Origin:
    """The step where the first NaN of a run appears, or the first infinities that no later launch
    absorbs (state `infinite`).

    `overflow` is the step whose infinities became the NaN, `None` if no step's did. `allowed` is
    set if the step only passes NaN on: the step that made them, where `--allow` permits them.
    `given` are inputs of the call whose infinities became the NaN. `absorbed`: nothing that the
    call returns or updates has NaN.
    """

    state: NonFiniteState
    node: FlowNode
    rows: tuple[TensorRow, ...]
    overflow: FlowNode | None = None
    overflow_rows: tuple[TensorRow, ...] = ()
    allowed: FlowNode | None = None
    given: tuple[TensorRow, ...] = ()
    absorbed: bool = False


def infinite_origins_of(run: RunDump, allowed: Allowed) -> Iterator[Origin]:
    """Yield the infinities of one call that a launch computed and no later one absorbs."""
    if not _ANY_INFINITY.search(run.event_bytes()):
        return
    flow = flow_of(run)
    for node in infinities.remaining(flow, len(run.steps), allowed):
        yield Origin("infinite", node, infinities.held(flow, node, allowed))


def origins_of(run: RunDump, allowed: Allowed) -> Iterator[Origin]:
    """Yield the steps of one call that make NaN: if the call returns some, only the first step
    whose NaN get there, and else all."""
    # Event files may be long, and most have no NaN: search before parsing.
    if not _ANY_NAN.search(run.event_bytes()):
        return
    flow = flow_of(run)
    steps = _steps_with_nan(run, flow, allowed)
    if (first := next(steps, None)) is None:
        return
    left = _left(run, flow)
    found = [first, *steps]
    if left is None:
        staying = next((x for x in found if not _is_overwritten(flow, x)), None)
        if staying is not None:
            yield staying
            return
    elif known := {x.step for x in left if _has_nan(flow, x)}:
        yield next((x for x in found if known & _reached(flow, x)), first)
        return
    last = dataflow.outputs(flow.nodes)
    given = () if last is None else last.returned  # some may be inputs of the call, as they are
    for origin in found:
        returned = any(NoResult(f"the input {row.arg}", True) in given for row in origin.rows)
        is_passed = origin.state == "given" and returned
        is_read = origin.state == "read" and left is not None
        yield replace(origin, absorbed=not is_read and not is_passed)


def _steps_with_nan(run: RunDump, flow: Flow, allowed: Allowed) -> Iterator[Origin]:
    """The first step with NaN, and each later one that makes some and reads none."""
    is_first = True
    for node in flow.nodes[: len(run.steps)]:
        found = _found(run, flow, node, allowed)
        if found is not None and (is_first or found.state not in ("read", "passed")):
            is_first = False
            yield found


def _found(run: RunDump, flow: Flow, node: FlowNode, allowed: Allowed) -> Origin | None:
    rows = defined_rows(flow, node)
    kernel = "" if node.step.launch is None else node.step.kernel
    written = _with_nan(launched.results(rows), kernel, allowed)
    if node.step.launch is None:
        return Origin("given", node, written) if written else None
    read = _with_nan(launched.reads(rows), kernel, allowed)
    passed = [_allowed_maker(flow, node, row, allowed) for row in read]
    if None in passed:
        return Origin("read", node, read)
    if written and passed:
        return Origin("passed", node, written, allowed=passed[0])
    return _written(run, flow, node, written) if written else None


def _left(run: RunDump, flow: Flow) -> list[ValueOrigin] | None:
    """The values that a call returns or leaves in its inputs; `None` if not all are known."""
    last = dataflow.outputs(flow.nodes)
    if last is None or any(isinstance(x, NoResult) and not x.is_known for x in last.returned):
        return None
    tensors = [*outputs_of(run, flow.nodes), *inputs_written(run, flow.nodes)]
    if not are_writes_recorded(run, flow.unrecorded, {tensor.name for tensor in tensors}):
        return None
    left = [x for tensor in tensors for x in (*tensor.holds, *tensor.may_hold)]
    rows = map(flow.origin, left)
    return left if all(row is not None and row.is_measured for row in rows) else None


def _has_nan(flow: Flow, value: ValueOrigin) -> bool:
    row = flow.origin(value)
    return row is not None and bool(row.nan)


def _reached(flow: Flow, origin: Origin) -> set[int]:
    """The steps to whose results the NaN of a step get."""
    reached = {origin.node.step.position}
    for node in flow.nodes[origin.node.step.position + 1 :]:
        if any(x.step in reached and _has_nan(flow, x) for x in node.origins):
            reached.add(node.step.position)
    return reached


def _is_overwritten(flow: Flow, origin: Origin) -> bool:
    """Whether each value with NaN that comes from a step is updated in place as a whole until it
    has none, as memory that a loop fills row by row."""
    if origin.node.step.launch is None:
        return False
    nodes = [flow.nodes[x] for x in _reached(flow, origin)]
    made = (ValueOrigin(x.step.position, slot) for x in nodes for slot in x.slots.values())
    having = {value for value in made if _has_nan(flow, value)}
    later = flow.nodes[origin.node.step.position + 1 :]
    return having <= {value for node in later for value in _updated(flow, node)}


def _updated(flow: Flow, node: FlowNode) -> Iterator[ValueOrigin]:
    """The values that a step updates in place as a whole."""
    for name, values in node.given.items():
        made = node.result(name)
        result = None if made is None else flow.origin(made)
        for value in values if result is not None else ():
            row = flow.origin(value)
            if row is not None and result is not None and row.size == result.size:
                yield value


def _allowed_maker(flow: Flow, node: FlowNode, row: TensorRow, allowed: Allowed) -> FlowNode | None:
    """The step that made the NaN that a launch read, if they are allowed there."""
    makers = []
    for source in node.given.get(row.arg.partition("[")[0], node.given.get(row.arg, ())):
        maker, made = flow.nodes[source.step], flow.origin(source)
        if made is None or not made.nan:
            continue
        kernel = "" if maker.step.launch is None else maker.step.kernel
        if not allowed.covers(kernel, made.arg):
            return None
        makers.append(maker)
    return makers[0] if makers else None


def _written(run: RunDump, flow: Flow, node: FlowNode, held: tuple[TensorRow, ...]) -> Origin:
    rows = flow.rows(node)
    measured = any(row.is_measured for row in launched.tensors(launched.reads(rows)))
    known = measured or _is_known(flow, node, rows)
    known = known and not unrecorded(run, flow, node)
    origin = Origin("made" if known else "wrote", node, held)
    maker = next(infinities.makers(flow, node), None)
    if maker is None:
        return replace(origin, given=tuple(infinities.given(flow, node)))
    return replace(origin, overflow=maker, overflow_rows=infinities.held(flow, maker))


def _is_known(flow: Flow, node: FlowNode, rows: Sequence[EventRow]) -> bool:
    """Whether every input of a launch was measured when it was written."""
    origins = [node.given.get(row.arg, ()) for row in launched.given(rows)]
    written = (flow.origin(x) for of in origins for x in of)
    is_measured = all(row is not None and row.is_measured for row in written)
    return bool(origins) and all(origins) and is_measured


def _with_nan(rows: Sequence[EventRow], kernel: str, allowed: Allowed) -> tuple[TensorRow, ...]:
    found = (row for row in launched.tensors(rows) if row.nan)
    return tuple(row for row in found if not allowed.covers(kernel, row.arg))


_LAST = 10  # steps that may be skipped at the end of a run


def skipped_steps(dump: Dump, is_finite: Callable[[RunDump], bool]) -> frozenset[str]:
    """The names of the calls of backward graphs whose step was skipped.

    A call with finite values behind one without shows that the weights have not taken the gradients
    of that one. Empty for a wrapper of which all calls, or the last ten, are not finite: there, no
    factor helps.
    """
    calls: dict[tuple[object, ...], list[RunDump]] = {}
    for run in sorted(dump.runs, key=lambda run: run.number):
        if run.names.direction == "backward":
            calls.setdefault((run.rank, run.facts.pid, run.sha256), []).append(run)
    names: set[str] = set()
    for runs in calls.values():
        finite = [is_finite(run) for run in runs]
        recovered = any(not a and b for a, b in itertools.pairwise(finite))
        if recovered and any(finite[-_LAST:]):
            names |= {run.name for run, known in zip(runs, finite, strict=True) if not known}
    return frozenset(names)


def skipped_note(names: frozenset[str]) -> str:
    """In one sentence; empty if no step was skipped."""
    if not names:
        return ""
    steps = "one step" if len(names) == 1 else f"{len(names)} steps"
    return (
        f"the gradients of {steps} are not finite and were not taken over into the weights, as "
        "with a loss that is scaled (torch.amp.GradScaler)"
    )
