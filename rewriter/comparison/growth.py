"""Finds where an error began that only a later launch carried out of its tolerance.

A wrong constant may change results by less than the tolerance; the product that reads them then
exceeds it, and did nothing wrong. So where what a culprit read was not equal bit for bit, the blame
goes to that launch, of it and all that led to it, which multiplied the error most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rewriter.comparison.dataflow import Node
from rewriter.comparison.types import LaunchComparison, TensorComparison

# What rounding alone makes of exact inputs, relatively. An error below it is none to multiply.
_ROUNDING = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
}

# By how much more than the launch that exceeds the tolerance another has to multiply the error.
_CLEARLY = 2.0


def trace_back(
    launches: Sequence[LaunchComparison], nodes: Sequence[Node]
) -> list[LaunchComparison]:
    """Move blame to where errors began; `nodes` are the steps of dump A."""
    positions = {x.a.step: i for i, x in enumerate(launches) if x.a and x.b}
    result = list(launches)
    for position, launch in enumerate(launches):
        if launch.blame != "culprit" or launch.state != "numeric" or launch.a is None:
            continue
        if not _error(launch.reads):
            continue  # equal bit for bit, or not known to be otherwise
        led = {positions[step] for step in _led_to(launch.a.step, positions, launches, nodes)}
        origin = max(led, key=lambda at: _growth(launches[at]) or 0.0, default=position)
        own, most = _growth(launch), _growth(launches[origin])
        if own is None or most is None or most <= _CLEARLY * own:
            continue
        began = launches[origin]
        said = _error(began.results)
        assert said is not None
        reason = (
            f"an error begins here: {_error(began.reads) or 0.0:.2g} of what it reads, {said:.2g} "
            f"of its results, within tolerance; {launch.place} exceeds it with that"
        )
        reasons = (*result[origin].reasons, reason)
        result[origin] = replace(result[origin], blame="culprit", reasons=reasons)
        result[position] = replace(
            launch, blame="downstream", producers=(began.place,), reasons=launch.reasons
        )
    return result


def _led_to(
    step: int,
    positions: dict[int, int],
    launches: Sequence[LaunchComparison],
    nodes: Sequence[Node],
) -> set[int]:
    """The steps with an error from which values came to a step, through others with an error."""
    found: set[int] = set()
    waiting = [step]
    while waiting:
        for source in nodes[waiting.pop()].origins:
            if source.step in found or source.step not in positions:
                continue
            if _error(launches[positions[source.step]].results):
                found.add(source.step)
                waiting.append(source.step)
    return found


def _growth(launch: LaunchComparison) -> float | None:
    """How many times the error of what it read a launch has in its results."""
    before, after = _error(launch.reads), _error(launch.results)
    if after is None or (before is None and launch.reads):
        return None
    rounding = max((_rounding(tensor) for tensor in launch.results), default=0.0)
    return after / max(before or 0.0, rounding)


def _error(tensors: Iterable[TensorComparison]) -> float | None:
    """The largest relative error of some values, by their root mean square; `None` if unknown."""
    errors = []
    for tensor in tensors:
        if "dtype" not in tensor.a:
            continue
        if tensor.metrics is None or math.isnan(tensor.metrics.snr):
            return None
        errors.append(10 ** (-tensor.metrics.snr / 20))
    return max(errors, default=0.0)


def _rounding(tensor: TensorComparison) -> float:
    return max(_ROUNDING.get(str(row.get("dtype")), 2.0**-53) for row in (tensor.a, tensor.b))
