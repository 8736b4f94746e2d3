"""A value that depends on a few roundings to half types, which a fused kernel makes or leaves out.

A bound that allows for both is wide: it lets each term of a sum be off by its own rounding, though
the kernel rounds all of them or none. So the value is computed each way, and has to be one of
these, or between them, within the bounds of float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import HALVES, READING, Bounded
from rewriter.diagnosis.verification.evaluate import MEAN, Evaluator
from rewriter.diagnosis.verification.judge import value_of
from rewriter.diagnosis.verification.operators.moves import MOVES
from rewriter.diagnosis.verification.operators.operands import names
from rewriter.model_names.graph import FxGraph, FxNode

# Of these, a kernel reads each element once: others are computed in several loops, which may see it
# rounded or not.
_ONCE = names(
    f"""add sub mul div neg exp log sqrt rsqrt reciprocal pow abs square sigmoid tanh relu maximum
    minimum clamp sum {MEAN}"""
)
_SAME = names("convert_element_type _to_copy")
# Of these, what is rounded before is what is rounded after.
_OF_HALVES = names("relu neg abs")
_FEW = 3  # uses of rounded values, of which each way is tried


def between(graph: FxGraph, known: Mapping[str, Any], sizes: Mapping[str, int], name: str) -> Any:
    """A node of float32 as a `Bounded` from one reading to the other; `None` if it does not depend
    on few roundings. Each use of a rounded value may see it rounded or not: loops of one kernel
    differ. Raises `UncheckedError`."""
    inside = {name, *graph.ancestors(name, lambda x: x not in known)} - known.keys()
    types = Evaluator(graph, {}, sizes)
    kinds = {text: kind.dtype for text in inside if (kind := types.type_of(text)) is not None}
    nodes = [x for x in graph.nodes.values() if x.name in inside]
    rounding = {
        x.name
        for x in nodes
        if kinds.get(x.name) in HALVES and not x.is_view and x.operator not in MOVES | _OF_HALVES
    }
    if not rounding or kinds.get(name) is not torch.float32:
        return None
    below = {*rounding}
    for node in nodes:  # in the order in which they are computed
        if node.name in below or not below.isdisjoint(node.reads):
            below.add(node.name)
            if not (node.is_view or node.operator in _ONCE | _SAME | MOVES):
                return None
    uses = Counter({name: 1})
    for node in reversed(nodes):
        uses += Counter(dict.fromkeys(below.intersection(node.reads), uses[node.name]))
    if sum(uses[half] for half in rounding) > _FEW:
        return None
    copies: dict[str, FxNode] = {}
    unread: dict[str, list[str]] = {}  # the copies of a node that no other copy reads so far
    halves: list[str] = []
    for node in nodes:
        if node.name not in below:
            continue
        unread[node.name] = [f"{node.name}_use_{number}" for number in range(uses[node.name])]
        halves += unread[node.name] if node.name in rounding else ()
        for copy in unread[node.name]:
            reads = {x: unread[x].pop() for x in below.intersection(node.reads)}
            copies[copy] = replace(node.reading(reads), name=copy)
    (name,) = unread[name]
    graph = replace(graph, nodes={**graph.nodes, **copies})
    found: list[Bounded] = []
    for ways in product(("kept", "rounded"), repeat=len(halves)):
        read = dict(known)
        for half, way in zip(halves, ways, strict=True):
            token = READING.set(way)
            try:
                read[half] = value_of(half, Evaluator(graph, read, sizes))
            finally:
                READING.reset(token)
        found.append(value_of(name, Evaluator(graph, read, sizes)))
    low = torch.stack([x.value - x.bound() for x in found]).amin(0)
    high = torch.stack([x.value + x.bound() for x in found]).amax(0)
    through = found[0].through | {kinds[half] for half in rounding}
    return replace(found[0], value=(low + high) / 2, error=(high - low) / 2, through=through)
