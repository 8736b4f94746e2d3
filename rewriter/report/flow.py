"""Says of each step of a run to which layer of the model it belongs, and who wrote what it reads.

The layer is known by the parameters that a launch reads, such as `blocks.2` of
`blocks.2.attention.qkv.weight`. A launch that reads none continues the layer before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rewriter.dump.dataflow import FlowNode
from rewriter.dump.launched import variable
from rewriter.dump.names import KEPT, Names
from rewriter.dump.reading import RunDump


class Place(NamedTuple):
    """`layer` is empty if it is not known. `given` are inputs with the step that wrote each, and
    its name there: memory may be taken over."""

    layer: str = ""
    given: tuple[tuple[str, int, str], ...] = ()


def places(run: RunDump, nodes: Sequence[FlowNode]) -> Iterator[Place]:
    """The place of each step in the flow of values. Parameters are no edges."""
    layer = ""
    for node in nodes:
        facts = run.launch_row(node.step.launch)
        read = [label[1] for label in facts.before or facts.reads]
        layer = next(_layers(run.names, read or list(node.given)), layer)
        given = (
            (name, step, next((x for x, at in nodes[step].slots.items() if at == slot), name))
            for name, origins in node.given.items()
            if not _is_kept(run.names, name)
            for step, slot in ((x.step, x.slot) for x in origins)
        )
        yield Place(layer if node.step.launch is not None else "", tuple(dict.fromkeys(given)))


def _layers(names: Names, read: Sequence[str]) -> Iterator[str]:
    for name in read:
        if _is_kept(names, name):
            parts = names.called(variable(name)).split(".")[:-1]
            numbers = [at for at, part in enumerate(parts, 1) if part.isdecimal()]
            yield ".".join(parts[: numbers[0] if numbers else 1])


def _is_kept(names: Names, name: str) -> bool:
    known = names.inputs.get(variable(name))
    return known is not None and known.kind in KEPT
