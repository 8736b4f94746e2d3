"""Finds infinities that a launch computed from finite numbers, and what became of them.

An infinity by itself is not a fault: attention masks with it, and softmax turns it into zeros. It
is a fault if nothing absorbs it, or if it becomes NaN.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rewriter.core.dtypes import LARGEST
from rewriter.dump import launched
from rewriter.dump.allowed import Allowed
from rewriter.dump.dataflow import Flow, FlowNode, ValueOrigin
from rewriter.dump.rows import TensorRow

NEAR = 100  # a result of more than the largest number divided by this suggests an overflow
_WORD = re.compile(r"[a-z0-9]+")
NOTHING_ALLOWED = Allowed(())


def held(flow: Flow, node: FlowNode, allowed: Allowed = NOTHING_ALLOWED) -> tuple[TensorRow, ...]:
    """The results of a launch with infinities, except those that may have them."""
    rows = launched.tensors(launched.results(flow.rows(node)))
    kernel = node.step.kernel if node.step.launch is not None else ""
    return tuple(
        row
        for row in rows
        if row.inf and not allowed.covers(kernel, row.arg) and not _is_padding(kernel, row)
    )


def _is_padding(kernel: str, row: TensorRow) -> bool:
    """Whether infinities pad the rows of logarithms that memory-efficient attention keeps for its
    backward: their length is a multiple of 32 (`kAlignLSE` in torch's
    native/transformers/cuda/mem_eff_attention/kernel_forward.h)."""
    return (
        "_scaled_dot_product_efficient_attention" in kernel
        and row.dtype == "float32"
        and len(row.shape) == 3
        and row.shape[-1] % 32 == 0
        and not row.neginf
        and (row.inf or 0) % (row.shape[0] * row.shape[1] or 1) == 0
    )


def makers(flow: Flow, node: FlowNode) -> Iterator[FlowNode]:
    """The launches that computed, from finite numbers, the infinities which a launch read."""
    for source in _origins(flow, node):
        maker = flow.nodes[source.step]
        if maker.step.launch is not None and launched.computes(flow.rows(maker)):
            yield maker


def given(flow: Flow, node: FlowNode) -> Iterator[TensorRow]:
    """The inputs of the call whose infinities a launch read, except those that look like masks."""
    for source in _origins(flow, node):
        row = flow.origin(source)
        if flow.nodes[source.step].step.launch is None and row and row.neginf != row.inf:
            yield row


def _origins(flow: Flow, node: FlowNode) -> Iterator[ValueOrigin]:
    """Yield the first values with the infinities that a launch read."""
    seen: set[ValueOrigin] = set()
    waiting = [node]
    while waiting:
        for source in _read(flow, waiting.pop()):
            if source in seen:
                continue
            seen.add(source)
            maker = flow.nodes[source.step]
            if maker.step.launch is not None and _is_given(flow, maker):
                waiting.append(maker)
            else:
                yield source


def remaining(flow: Flow, steps: int, allowed: Allowed) -> Iterator[FlowNode]:
    """Yield the launches among the first `steps` nodes that computed infinities which no later
    launch absorbs, in order. Skips masks: infinities of one sign that are not from an overflow."""
    readers: dict[ValueOrigin, list[FlowNode]] = defaultdict(list)
    for node in flow.nodes:
        for source in set(node.origins):
            readers[source].append(node)
    for node in flow.nodes[:steps]:
        rows = () if node.step.launch is None else held(flow, node, allowed)
        if not rows or _is_given(flow, node) or not launched.computes(flow.rows(node)):
            continue
        if all(is_mask(node, row) for row in rows):
            continue
        slots = [ValueOrigin(node.step.position, node.slots[row.arg]) for row in rows]
        if _remain(flow, slots, readers):
            yield node


def is_mask(node: FlowNode, row: TensorRow) -> bool:
    """Whether infinities seem to be intended: all -Inf, beside numbers far from the limit of their
    type, by a kernel that computes no logarithm."""
    if row.neginf != row.inf:
        return False
    words = set(_WORD.findall(" ".join((node.place.kernel, *node.place.origins)).replace("_", " ")))
    if "log" in words and "softmax" not in words:
        return False
    largest, size = LARGEST.get(row.dtype), row.magnitude
    return not (largest and size is not None and size >= largest / NEAR)


def _remain(
    flow: Flow, slots: Sequence[ValueOrigin], readers: dict[ValueOrigin, list[FlowNode]]
) -> bool:
    """Whether infinities reach a value that nothing reads, or that the call returns."""
    waiting, seen = list(slots), set(slots)
    while waiting:
        source = waiting.pop()
        following = readers[source]
        launches = [node for node in following if not node.returned]
        if not following and source in flow.unseen:
            continue  # a launch that was not recorded may absorb them
        if not launches:
            return True
        absorbed = [node for node in launches if not held(flow, node)]
        row = flow.origin(source)
        if len(launches) < len(following) and not (absorbed and row and row.neginf == row.inf):
            return True  # returned, and not a mask that is kept for a backward
        for node in launches:
            for result in held(flow, node):
                origin = ValueOrigin(node.step.position, node.slots[result.arg])
                if origin not in seen:
                    seen.add(origin)
                    waiting.append(origin)
    return False


def _read(flow: Flow, node: FlowNode) -> Iterator[ValueOrigin]:
    """Yield the origins of the infinities that a launch read."""
    given = {row.arg: row for row in launched.given(flow.rows(node))}
    for name, sources in node.given.items():
        row = given.get(name)
        # The value of an updated argument is known from before the launch, or from its writer.
        known = row is not None and (row.phase == "before" or row.role == "in")
        for source in sources:
            if known and not (row and row.inf):
                continue
            if (written := flow.origin(source)) and written.inf:
                yield source


def _is_given(flow: Flow, node: FlowNode) -> bool:
    """Whether an input of a launch has infinities."""
    if next(_read(flow, node), None) is not None:
        return True
    return any(row.inf for row in launched.tensors(launched.reads(flow.rows(node))))
