"""Finds values that stand for uninitialised memory: Inductor writes NaN for `torch.empty`, as in
`torch.empty(n).bernoulli_(0.8)`, and the operator that draws all elements reads none of them."""

from __future__ import annotations

from msgspec import UNSET, structs

from rewriter.dump import launched
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.rows import EventRow, TensorRow
from rewriter.locate.operators import takes_shape


def defined_rows(flow: Flow, node: FlowNode) -> list[EventRow]:
    """The rows of a step; those of uninitialised values without statistics."""
    rows = flow.rows(node)
    if node.step.launch is None or not any(isinstance(x, TensorRow) and x.nan for x in rows):
        return rows
    read = launched.tensors(launched.reads(rows)) if takes_shape(node.step.kernel) else []
    written = launched.tensors(launched.results(rows))
    undefined = {id(x) for x in [*read, *(x for x in written if _is_undefined(flow, node, x))]}
    return [
        structs.replace(row, numel=UNSET, nan=UNSET, inf=UNSET)
        if id(row) in undefined and isinstance(row, TensorRow)
        else row
        for row in rows
    ]


def _is_undefined(flow: Flow, node: FlowNode, row: TensorRow) -> bool:
    """Whether a result of NaN alone is only given to an operator that draws all of its elements."""
    made = node.result(row.arg)
    if row.nan != row.size or made is None:
        return False
    later = flow.nodes[node.step.position + 1 :]
    reader = next((x for x in later if made in x.origins), None)
    return made in flow.unseen if reader is None else takes_shape(reader.step.kernel)
