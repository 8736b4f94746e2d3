"""Tells launches that went wrong themselves from those that were given wrong values.

A launch is the culprit if its results differ and nothing that it read does. Where the two runs
launch other kernels (one fuses what the other does not), what a launch read is followed through
launches without a counterpart, back to values that both runs have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rewriter.comparison.dataflow import Node, Source
from rewriter.comparison.types import DIFFERS, LaunchComparison, Place, State, TensorComparison

_WORST: tuple[State, ...] = ("equal", "unknown", "numeric", "non-finite", "structural")


def worst(states: Iterator[State] | Sequence[State]) -> State:
    """The state that stands for several; `unknown` for none, `equal` where some are unknown."""
    found = list(states)
    known = [state for state in found if state != "unknown"]
    return max(known, key=_WORST.index, default="unknown")


@dataclass(frozen=True)
class Run:
    """One side of a comparison: its steps, and the states of those results that were compared."""

    nodes: Sequence[Node]
    states: Mapping[Source, State]

    def causes(self, step: int) -> frozenset[int]:
        """The steps whose differing results a step read, also through steps whose results were not
        compared: they are of this run alone."""
        found: set[int] = set()
        seen = {step}
        waiting = [step]
        while waiting:
            for source in self.nodes[waiting.pop()].origins:
                if self.states.get(source) in DIFFERS:
                    found.add(source.step)
                elif source not in self.states and source.step not in seen:
                    seen.add(source.step)
                    waiting.append(source.step)
        return frozenset(found)

    def lone(self, step: int) -> list[Place]:
        """The steps whose results were not compared, from a step back to values that were."""
        found: dict[int, Place] = {}
        waiting = [step]
        while waiting:
            for source in self.nodes[waiting.pop()].origins:
                if source not in self.states and source.step not in found:
                    found[source.step] = self.nodes[source.step].place
                    waiting.append(source.step)
        return [found[position] for position in sorted(found)]


def judge(launch: LaunchComparison, a: Run, b: Run, back: Mapping[int, int]) -> LaunchComparison:
    """Say whose fault it is that the results of a matched launch differ, if they do.

    `back` gives the step of A that stands for a step of B.
    """
    assert launch.a is not None
    assert launch.b is not None
    if launch.state not in DIFFERS and launch.inputs not in DIFFERS:
        return launch
    if launch.a.is_inputs:
        return replace(launch, blame="culprit", reasons=("the inputs of the call differ",))
    in_a = a.causes(launch.a.step)
    in_b = b.causes(launch.b.step)
    causes = sorted(in_a | {back[step] for step in in_b if step in back})
    producers = tuple(a.nodes[step].place for step in causes)
    if launch.state not in DIFFERS:
        return replace(launch, producers=producers)
    compared = [x for x in launch.reads if x.state != "unknown" and "dtype" in x.a]
    if launch.inputs in DIFFERS and producers:
        return replace(launch, blame="downstream", producers=producers)
    if producers and len(compared) < len(a.nodes[launch.a.step].given):
        # Not all that it was given was recorded, or can be paired: its producers speak for it.
        return replace(launch, blame="downstream", producers=producers)
    return replace(launch, blame="culprit", reasons=_reasons(launch, compared, a, b))


def judge_by_readers(
    launch: LaunchComparison, a: Run, readers: Sequence[Place]
) -> LaunchComparison:
    """Say whose fault it is that a launch of A, whose results were not compared, is read wrong."""
    assert launch.a is not None
    step = launch.a.step
    state = worst([state for source, state in a.states.items() if source.step == step])
    if causes := sorted(a.causes(step)):
        producers = tuple(a.nodes[cause].place for cause in causes)
        return replace(launch, state=state, blame="downstream", producers=producers)
    reasons = [f"what it reads is equal, and what {', '.join(map(str, readers))} read of it is not"]
    if lone := a.lone(step):
        names = ", ".join(map(str, lone))
        reasons.append(f"in A it follows launches without a counterpart: {names}")
    return replace(launch, state=state, blame="culprit", reasons=tuple(reasons))


def _reasons(
    launch: LaunchComparison, compared: Sequence[TensorComparison], a: Run, b: Run
) -> tuple[str, ...]:
    assert launch.a is not None
    assert launch.b is not None
    reasons = []
    differing = [tensor.name for tensor in compared if tensor.state in DIFFERS]
    if differing:
        reasons.append(
            f"it reads other values ({', '.join(differing)}), though what produced them is equal: "
            "it was given other operands, or they were overwritten in between"
        )
    elif compared and all(map(_identical, compared)):
        reasons.append("what it reads is equal bit for bit")
    elif compared:
        reasons.append("what it reads is equal within tolerance")
    else:
        reasons.append("what it reads was not recorded; what produced it is equal")
    for side, run, step in (("A", a, launch.a.step), ("B", b, launch.b.step)):
        if lone := run.lone(step):
            names = ", ".join(map(str, lone))
            reasons.append(f"in {side} it follows launches without a counterpart: {names}")
    return tuple(reasons)


def _identical(tensor: TensorComparison) -> bool:
    if tensor.metrics:
        return tensor.metrics.identical
    return tensor.state == "equal" and tensor.basis in ("hashes", "none")
