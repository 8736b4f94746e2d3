"""The launches that wrote the outputs of a call: one each, or several with a part each (`cat`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewriter.dump import dataflow, launched
from rewriter.dump.dataflow import FlowNode, ValueOrigin
from rewriter.dump.reading import RunDump
from rewriter.execution.dumped_wrappers import wrapper_of


@dataclass(frozen=True)
class Output:
    """An output, or an input that launches write. `holds` are the results in it, `may_hold` earlier
    results of which it is not known whether they were overwritten."""

    name: str
    holds: tuple[ValueOrigin, ...]
    may_hold: tuple[ValueOrigin, ...]


def outputs_of(run: RunDump, nodes: Sequence[FlowNode]) -> Iterator[Output]:
    """The outputs of a call that recorded launches wrote; `nodes` are those of a `Flow`."""
    last = dataflow.outputs(nodes)
    if last is None:
        return
    wrapper = wrapper_of(run)
    # A buffer that takes over the memory of another one is written as a whole; other names are
    # views of parts. None if the dump has no wrapper, so that the two cannot be told apart.
    whole = None
    if wrapper is not None:
        makes = ("allocate", "reuse")
        events = (x for x in wrapper.located.memory if x.scope == last.place.scope)
        whole = {x.buffer for x in events if x.action in makes}
    for label, (source,) in last.given.items():
        earlier = [x for x in last.earlier.get(label, ()) if x.step < source.step]
        holds = {source, *last.earlier.get(label, ())} - {*earlier}
        may_hold: set[ValueOrigin] = set()
        if whole is None:
            may_hold |= {*earlier}
        else:
            over = [x.step for x in {*holds, *earlier} if _variable(nodes, x) in whole]
            holds |= {x for x in earlier if x.step >= max(over, default=0)}
        name = dataflow.output_variable(label)
        yield Output(name, tuple(sorted(holds)), tuple(sorted(may_hold)))


def inputs_written(run: RunDump, nodes: Sequence[FlowNode]) -> Iterator[Output]:
    """The inputs that launches write; the caller sees the result."""
    last = dataflow.outputs(nodes)
    scope = None if last is None else last.place.scope
    inputs = {row.arg for row in launched.tensors(run.inputs)}
    written: dict[str, list[ValueOrigin]] = {}
    for node in nodes:
        if node.step.launch is None or node.place.scope != scope:
            continue
        facts = run.launch_row(node.step.launch)
        for name, slot in node.slots.items():
            root = launched.buffer_of(facts, name)
            if root in inputs:
                written.setdefault(root, []).append(ValueOrigin(node.step.position, slot))
    for name, origins in written.items():
        holds = tuple(x for x in origins if x.step == origins[-1].step)
        yield Output(name, holds, tuple(x for x in origins if x not in holds))


def _variable(nodes: Sequence[FlowNode], source: ValueOrigin) -> str:
    slots = nodes[source.step].slots
    return next((launched.variable(x) for x, slot in slots.items() if slot == source.slot), "")
