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
_NAMED = 3


def trace_back(
    launches: Sequence[LaunchComparison], nodes: Sequence[Node]
) -> list[LaunchComparison]:
    """Move blame to where errors began; `nodes` are the steps of dump A."""
    positions = {x.a.step: i for i, x in enumerate(launches) if x.a and x.b}
    began: dict[int, list[int]] = {}  # positions of those that exceed the tolerance, by the origin
    for position, launch in enumerate(launches):
        if launch.blame != "culprit" or launch.state != "numeric" or launch.a is None:
            continue
        if not _error(launch.reads):
            continue  # equal bit for bit, or not known to be otherwise
        led = {positions[step] for step in _led_to(launch.a.step, positions, launches, nodes)}
        origin = max(led, key=lambda at: _growth(launches[at]) or 0.0, default=position)
        own, most = _growth(launch), _growth(launches[origin])
        if own is not None and most is not None and most > _CLEARLY * own:
            began.setdefault(origin, []).append(position)
    result = list(launches)
    for origin, carried in began.items():
        source = launches[origin]
        for position in carried:
            result[position] = replace(
                launches[position], blame="downstream", producers=(source.place,)
            )
        reasons = (*source.reasons, _reason(source, [launches[at] for at in carried]))
        result[origin] = replace(source, blame="culprit", reasons=reasons)
    return result


def _reason(origin: LaunchComparison, carried: Sequence[LaunchComparison]) -> str:
    names = ", ".join(str(launch.place) for launch in carried[:_NAMED])
    more = f" and {len(carried) - _NAMED} more" if len(carried) > _NAMED else ""
    return (
        f"an error begins here: {_error(origin.reads) or 0.0:.2g} of what it reads, "
        f"{_error(origin.results) or 0.0:.2g} of its results; outside the tolerance it is at "
        f"{names}{more}"
    )


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
