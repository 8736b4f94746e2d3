"""Tells launches that went wrong themselves from those that read wrong values.

A launch is a culprit if its results differ and its inputs do not. If the two runs launch different
kernels (one fuses what the other does not), the inputs of a launch are traced through launches
without a counterpart, back to values that both runs have. A launch that only one run has is judged
by its readers: if they read other values than in the other run, and its inputs are equal, it made
the difference; an example is a launch that runs twice and works in place.

A wrong constant may change results by less than the tolerance; the matrix product that reads them
then exceeds it without being at fault. So if the inputs of a culprit were not equal bit for bit,
the blame goes to the launch, among it and all that led to it, that multiplied the error most.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rewriter.comparison.dumps.types import (
    DIFFERS,
    LaunchComparison,
    RunComparison,
    State,
    TensorComparison,
)
from rewriter.core.align import Pair
from rewriter.core.dtypes import ROUNDING
from rewriter.core.text import some
from rewriter.dump.dataflow import FlowNode, ValueOrigin, fingerprint
from rewriter.dump.launched import OUTPUTS, RecordedLaunch
from rewriter.dump.rows import TensorRow
from rewriter.locate.names import canonical

_WORST: tuple[State, ...] = ("equal", "rounding", "numeric", "non-finite", "structural")

_NAMED = 3  # launches named in a sentence
# How many times more than the culprit another launch has to multiply the error to be blamed.
_CLEARLY = 2.0
# A launch that multiplies the error of its inputs by at most this is taken to pass it on.
_CARRIED = 10.0
_DOUBLE = 2.0**-53


def worst(states: Iterable[State]) -> State:
    """The combined state of several: `unknown` for none, `equal` if the rest are unknown."""
    known = (state for state in states if state != "unknown")
    return max(known, key=_WORST.index, default="unknown")


@dataclass
class ComparedRun:
    """One side of a comparison: its steps, those that have a counterpart, the states of the results
    that were compared, and by their steps the launches that read other results wrong."""

    nodes: Sequence[FlowNode]
    matched: frozenset[int]
    states: dict[ValueOrigin, State] = field(default_factory=dict)
    readers: dict[int, list[RecordedLaunch]] = field(default_factory=dict)

    def causes(self, step: int) -> frozenset[int]:
        """The steps whose differing results a step read, directly or through steps whose results
        were not compared because only this run has them."""
        compared, _ = behind(self.nodes, self.nodes[step].origins, self.states)
        return frozenset(x.step for x in compared if self.states[x] in DIFFERS)

    def unmatched(self, step: int) -> list[RecordedLaunch]:
        """The steps without a counterpart, from a step back to the values that were compared."""
        _, between = behind(self.nodes, self.nodes[step].origins, self.states)
        return [self.nodes[x].place for x in between if x not in self.matched]


def behind(
    nodes: Sequence[FlowNode],
    sources: Iterable[ValueOrigin],
    compared: Mapping[ValueOrigin, State],
) -> tuple[list[ValueOrigin], list[int]]:
    """The values that were compared and that others come from, and the steps in between."""
    seen, found, between = set(sources), [], set()
    waiting = sorted(seen)
    while waiting:
        source = waiting.pop()
        if source in compared:
            found.append(source)
            continue
        between.add(source.step)
        further = [x for x in nodes[source.step].origins if x not in seen]
        seen.update(further)
        waiting += further
    return found, sorted(between)


def alone(a: RecordedLaunch | None, b: RecordedLaunch | None) -> LaunchComparison:
    """The comparison of a launch that only one dump has."""
    return LaunchComparison(a, b, "structural", "unknown")


def without_false_pairs(
    launches: Sequence[LaunchComparison], pairs: Sequence[Pair], nodes: Sequence[FlowNode]
) -> Iterator[LaunchComparison]:
    """Split pairs of launches that provenance, shape or order paired wrongly.

    A pair is wrong if nothing that it writes could be compared, or if all differing results are
    read later and are equal there. `pairs` say how the launches were aligned, `nodes` are the steps
    of dump A.
    """
    read_as: dict[ValueOrigin, set[State]] = {}
    for launch in launches:
        for tensor in launch.reads:
            for source in nodes[launch.both[0].step].given.get(tensor.a.arg, ()):
                read_as.setdefault(source, set()).add(tensor.state)
    for launch, pair in zip(launches, pairs, strict=True):
        a, b = launch.a, launch.b
        # The strictest key includes everything that led to a launch.
        is_moved = pair.moved and pair.level > 0
        if a and b and (is_moved or canonical(a.kernel) != canonical(b.kernel)):
            wrong = [tensor for tensor in launch.results if tensor.state in DIFFERS]
            made = (nodes[a.step].result(tensor.a.arg) for tensor in wrong)
            read = [None if origin is None else read_as.get(origin) for origin in made]
            unfit = bool(launch.unmatched) and not launch.results
            if unfit or (wrong and all(states == {"equal"} for states in read)):
                yield from (alone(a, None), alone(None, b))
                continue
        yield launch


def judge(
    launches: Sequence[LaunchComparison], a: Sequence[FlowNode], b: Sequence[FlowNode]
) -> Iterator[LaunchComparison]:
    """The launches, with the blame for what differs."""
    back = {x.b.step: x.a.step for x in launches if x.a and x.b}
    run_a = ComparedRun(a, frozenset(back.values()))
    run_b = ComparedRun(b, frozenset(back))
    for launch in launches:
        for tensor in launch.results:
            rows = tensor.a, tensor.b
            for run, place, row in zip((run_a, run_b), launch.both, rows, strict=True):
                made = run.nodes[place.step].result(row.arg)
                if made is not None and tensor.state != "unknown":
                    run.states[made] = tensor.state
    known_a, known_b = frozenset(run_a.states), frozenset(run_b.states)
    for x, y, state, place in _as_read(launches, a, b, known_a, known_b):
        for source, run in ((x, run_a), (y, run_b)):
            if source is not None:
                run.states[source] = worst([state, run.states.get(source, "unknown")])
                # If neither side was compared, the value of A is named.
                if state in DIFFERS and (run is run_a or x is None):
                    run.readers.setdefault(source.step, []).append(place)
    for launch in launches:
        judged = _judge(launch, run_a, run_b, back) if launch.matched else launch
        # A launch that was not selected for comparison gets no blame.
        seen = not launch.matched or launch.tensors
        run = run_a if launch.a else run_b
        if seen and not judged.blame and launch.place.step in run.readers:
            judged = _judge_by_readers(judged, run)
        yield judged


def between_calls(runs: Iterable[RunComparison]) -> Iterator[RunComparison]:
    """The calls, without blame for inputs that an earlier call returned with the same differences,
    such as what a forward pass leaves for its backward pass."""
    returned: dict[Hashable, str] = {}  # by rank and value
    for run in runs:
        rank = run.a.partition("/")[0]
        launches = list(run.launches)
        for place, launch in enumerate(launches):
            if launch.blame != "culprit" or launch.a is None or not launch.a.is_inputs:
                continue
            differing = [x for x in (*launch.reads, *launch.results) if x.state in DIFFERS]
            calls = {returned.get((rank, _both(tensor)), "") for tensor in differing}
            if calls and all(calls):
                reason = f"{some(sorted(calls), _NAMED)} returned them so"
                launches[place] = replace(launch, blame="downstream", reasons=(reason,))
        yield replace(run, launches=tuple(launches))
        for launch in launches:
            if launch.place.kernel == OUTPUTS and launch.a is not None:
                values = (_both(tensor) for tensor in launch.reads if tensor.state in DIFFERS)
                returned |= {(rank, value): run.a for value in values if value is not None}


def _both(tensor: TensorComparison) -> Hashable:
    """What identifies a value in both dumps; `None` if they do not say."""
    found = [fingerprint(row) for row in tensor.tensors or ()]
    return tuple(found) if found and None not in found else None


def _as_read(
    launches: Iterable[LaunchComparison],
    a: Sequence[FlowNode],
    b: Sequence[FlowNode],
    known_a: frozenset[ValueOrigin],
    known_b: frozenset[ValueOrigin],
) -> Iterator[tuple[ValueOrigin | None, ValueOrigin | None, State, RecordedLaunch]]:
    """Yield results that were not compared where they were made, with their states as read.

    If both sides of a launch read the same operand, and one of the operands comes from a launch
    without a counterpart, the two values are compared here; a side is `None` if its value was
    compared. The first reader of a value reads it as it was made; several readers may read views of
    it, which have names of their own.
    """
    seen: set[tuple[str, ValueOrigin, str]] = set()
    for launch in launches:
        for tensor in launch.reads:
            in_a, in_b = launch.both
            name, other = tensor.a.arg, tensor.b.arg
            ours = a[in_a.step].given.get(name, ())
            theirs = b[in_b.step].given.get(other, ())
            if len(ours) != 1 or len(theirs) != 1 or tensor.state == "unknown":
                continue
            one, two = ("a", ours[0], name), ("b", theirs[0], other)
            x = None if ours[0] in known_a or one in seen else ours[0]
            y = None if theirs[0] in known_b or two in seen else theirs[0]
            seen |= {one, two}
            if x or y:
                yield x, y, tensor.state, in_a


def _judge(
    launch: LaunchComparison, a: ComparedRun, b: ComparedRun, back: Mapping[int, int]
) -> LaunchComparison:
    """Decide who is to blame if the results of a matched launch differ.

    `back` maps a step of B to the step of A.
    """
    if launch.state not in DIFFERS and launch.inputs not in DIFFERS:
        return launch
    ours, theirs = launch.both
    if ours.is_inputs:
        return replace(launch, blame="culprit", reasons=("the inputs of the call differ",))
    in_a, in_b = a.causes(ours.step), b.causes(theirs.step)
    causes = sorted(in_a | {back[step] for step in in_b if step in back})
    producers = tuple(a.nodes[step].place for step in causes)
    unmatched = [b.nodes[step].place for step in sorted(in_b) if step not in back]
    if unmatched and not producers:
        names = some(list(map(str, unmatched)), _NAMED)
        reason = f"in B, {names} wrote what it reads; A has no such launch"
        return replace(launch, blame="downstream", reasons=(*launch.reasons, reason))
    if ours.kernel == OUTPUTS and not producers:
        reasons = (*_returned(launch, a, b), *launch.reasons)
        return replace(launch, blame="culprit", reasons=reasons)
    if launch.state not in DIFFERS:
        return replace(launch, producers=producers)
    compared = [x for x in launch.reads if x.state != "unknown" and isinstance(x.a, TensorRow)]
    if launch.inputs in DIFFERS and producers:
        return replace(launch, blame="downstream", producers=producers)
    if producers and len(compared) < len(a.nodes[ours.step].given):
        # Some inputs were not recorded or cannot be paired: their producers are judged instead.
        return replace(launch, blame="downstream", producers=producers)
    reasons = (*launch.reasons, *_reasons(launch, compared, a, b))
    return replace(launch, blame="culprit", reasons=reasons)


def _judge_by_readers(launch: LaunchComparison, run: ComparedRun) -> LaunchComparison:
    """Decide who is to blame if the results of a launch are read wrong, and it was not compared, or
    only B (`run`) has it."""
    step = launch.place.step
    names = some(list(map(str, run.readers[step])), _NAMED)
    slots = run.nodes[step].slots.values()
    state = worst([run.states.get(ValueOrigin(step, slot), "unknown") for slot in slots])
    causes = sorted(run.causes(step))
    if causes and launch.a is None:
        return launch
    if causes:
        producers = tuple(run.nodes[cause].place for cause in causes)
        return replace(launch, state=state, blame="downstream", producers=producers)
    if launch.a is None:
        reasons = [f"A has no such launch, and {names} read other values there"]
    else:
        reasons = [f"its inputs are equal, and what {names} read of it is not"]
        reasons += _following(("A", run, step))
    return replace(launch, state=state, blame="culprit", reasons=tuple(reasons))


def _following(*places: tuple[str, ComparedRun, int]) -> Iterator[str]:
    for side, run, step in places:
        if unmatched := run.unmatched(step):
            names = ", ".join(map(str, unmatched))
            yield f"in {side} it follows launches without a counterpart: {names}"


def _reasons(
    launch: LaunchComparison, compared: Sequence[TensorComparison], a: ComparedRun, b: ComparedRun
) -> Iterator[str]:
    differing = [tensor.name for tensor in compared if tensor.state in DIFFERS]
    if differing:
        yield (
            f"it reads other values ({', '.join(differing)}), though what produced them is equal: "
            "its operands are others, or they were overwritten in between"
        )
    elif compared and all(tensor.identical for tensor in compared):
        yield "its inputs are equal bit for bit"
    elif any(tensor.state == "rounding" for tensor in compared):
        yield "what it reads differs by what rounding explains"
    elif any(tensor.basis == "statistics" for tensor in compared):
        yield "its inputs are equal as far as statistics show"
    elif compared:
        yield "its inputs are equal within tolerance"
    else:
        yield "its inputs were not recorded in both; the launches that wrote them are equal"
    ours, theirs = launch.both
    unread = a.nodes[ours.step].unread or b.nodes[theirs.step].unread
    if compared and not differing and unread:
        yield (
            "its inputs were recorded where they were written: `--args all` also records them "
            "here, and shows whether anything overwrote them in between"
        )
    yield from _following(("A", a, ours.step), ("B", b, theirs.step))


def _returned(launch: LaunchComparison, a: ComparedRun, b: ComparedRun) -> Iterator[str]:
    """Who wrote the outputs of the call last, though nothing that was compared differs."""
    in_a, in_b = launch.both
    for tensor in launch.reads:
        if tensor.state in DIFFERS:
            (ours,) = a.nodes[in_a.step].given[tensor.a.arg]
            (theirs,) = b.nodes[in_b.step].given[tensor.b.arg]
            yield (
                f"output {tensor.name} was written last by {a.nodes[ours.step].place} in A, by "
                f"{b.nodes[theirs.step].place} in B"
            )


def trace_back(
    launches: Sequence[LaunchComparison], nodes: Sequence[FlowNode]
) -> list[LaunchComparison]:
    """Move blame to where errors began; `nodes` are the steps of dump A."""
    at = {x.a.step: position for position, x in enumerate(launches) if x.a and x.b}
    given = [_error(launch.reads) for launch in launches]
    made = [_error(launch.results) for launch in launches]
    grown = [_growth(*each) for each in zip(launches, given, made, strict=True)]
    # By step, the launch that multiplied the error most, among all that led to the step.
    origins: dict[int, int] = {}
    for node in nodes:
        led: set[int] = set()
        for source in node.origins:
            place = at.get(source.step)
            if place is not None and made[place]:
                led |= {place, origins.get(source.step, place)}
        if led:
            origins[node.step.position] = max(sorted(led), key=lambda x: grown[x] or 0.0)
    began: dict[int, list[int]] = {}  # positions of launches over the tolerance, by origin
    for position, launch in enumerate(launches):
        before, after, own = given[position], made[position], grown[position]
        if launch.blame != "culprit" or launch.state != "numeric" or launch.a is None:
            continue
        if not before or after is None or own is None or after > _CARRIED * before:
            continue  # equal bit for bit, not known to differ, or an error of its own
        origin = origins.get(launch.a.step)
        if origin is not None and (grown[origin] or 0.0) > _CLEARLY * own:
            began.setdefault(origin, []).append(position)
    result = list(launches)
    for origin, carried in began.items():
        start = launches[origin]
        for number in carried:
            result[number] = replace(launches[number], blame="downstream", producers=(start.place,))
        names = some([str(launches[number].place) for number in carried], _NAMED)
        reason = (
            f"an error begins here: {given[origin] or 0.0:.2g} of what it reads, "
            f"{made[origin] or 0.0:.2g} of its results; outside the tolerance it is at {names}"
        )
        result[origin] = replace(start, blame="culprit", reasons=(*start.reasons, reason))
    return result


def _growth(launch: LaunchComparison, before: float | None, after: float | None) -> float | None:
    """How many times larger the error of a launch's results is than that of its inputs."""
    if after is None or (before is None and launch.reads):
        return None
    units = [[ROUNDING.get(dtype, _DOUBLE) for dtype in x.dtypes] for x in launch.results]
    rounding = max((max(unit, default=_DOUBLE) for unit in units), default=1.0)
    return after / max(before or 0.0, rounding)


def _error(tensors: Iterable[TensorComparison]) -> float | None:
    """The largest relative error (root mean square) of some values; `None` if unknown."""
    metrics = [tensor.metrics for tensor in tensors if isinstance(tensor.a, TensorRow)]
    errors = [10 ** (-x.snr / 20) for x in metrics if x is not None and not math.isnan(x.snr)]
    return max(errors, default=0.0) if len(errors) == len(metrics) else None
