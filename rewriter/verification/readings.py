"""A value that depends on one rounding to a half type, which a fused kernel makes or leaves out.

A bound that allows for both is wide: it lets each term of a sum be off by its own rounding, though
the kernel rounds all of them or none. So the value is computed both ways, and has to be one of the
two, or between them, within the bounds of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from rewriter.artifact.naming.graph import FxGraph
from rewriter.verification.bounded import HALVES, READING, Bounded
from rewriter.verification.evaluate import MEAN, Evaluator
from rewriter.verification.judge import value_of
from rewriter.verification.operators.operands import names

# Of these, a kernel reads each element once: others are computed in several loops, which may see it
# rounded or not.
_ONCE = names(
    f"""add sub mul div neg exp log sqrt rsqrt reciprocal pow abs square sigmoid tanh relu maximum
    minimum clamp sum {MEAN}"""
)
_SAME = names("convert_element_type _to_copy")


def between(graph: FxGraph, known: Mapping[str, Any], sizes: Mapping[str, int], name: str) -> Any:
    """A node of float32 as a `Bounded` from one reading to the other; `None` if it does not depend
    on one rounding that is read once. Raises `UncheckedError`."""
    inside, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in known and one not in inside and one in graph.nodes:
            inside.add(one)
            waiting += graph.nodes[one].reads
    types = Evaluator(graph, {}, sizes)
    kinds = {one: kind.dtype for one in inside if (kind := types.type_of(one)) is not None}
    halves = [one for one in inside if kinds.get(one) in HALVES]
    if len(halves) != 1 or kinds.get(name) is not torch.float32:
        return None
    rest, at = inside - {*halves}, halves[0]
    while True:
        readers = [x for x in rest if at in graph.nodes[x].reads]
        if len(readers) != 1 or graph.nodes[at].operator not in _ONCE | _SAME:
            return None
        if graph.nodes[readers[0]].operator not in _SAME:
            break
        at = readers[0]
    if not all(
        x.is_view or x.operator in _ONCE | _SAME for x in map(graph.nodes.__getitem__, rest)
    ):
        return None
    found: list[Bounded] = []
    for reading in ("kept", "rounded"):
        token = READING.set(reading)
        try:
            found.append(value_of(name, Evaluator(graph, known, sizes)))
        finally:
            READING.reset(token)
    low = torch.stack([x.value - x.bound() for x in found]).amin(0)
    high = torch.stack([x.value + x.bound() for x in found]).amax(0)
    through = found[0].through | {kinds[halves[0]]}
    return replace(found[0], value=(low + high) / 2, error=(high - low) / 2, through=through)
