"""Finds where an error began that exceeded the tolerance only at a later launch.

A wrong constant may change results by less than the tolerance; the matrix product that reads them
then exceeds it without being at fault. So if the inputs of a culprit were not equal bit for bit,
the blame goes to the launch, among it and all that led to it, that multiplied the error most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rewriter.comparison.dumps.types import LaunchComparison, TensorComparison
from rewriter.core.dtypes import ROUNDING
from rewriter.core.text import some
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.rows import TensorRow

# How many times more than the culprit another launch has to multiply the error to be blamed.
_CLEARLY = 2.0
# A launch that multiplies the error of its inputs by at most this is taken to pass it on.
_CARRIED = 10.0
_NAMED = 3
_DOUBLE = 2.0**-53


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
            origins[node.step.position] = max(sorted(led), key=lambda one: grown[one] or 0.0)
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
