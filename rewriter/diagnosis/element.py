"""Follows one element of a tensor backwards, through the saved values that it was computed from.

A dump does not say which elements a launch reads for one element of its result. They are known if
the launch is elementwise (the same index, or one that broadcasts to it), a reduction (a row), or a
matrix product (a row and a column); other arguments are left out. Imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from rewriter.core.text import figure
from rewriter.diagnosis.verdict_values import ElementRead, ElementStep, Producer
from rewriter.dump import launched
from rewriter.dump.dataflow import Flow, FlowNode, ValueOrigin
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import NonFinite, TensorRow
from rewriter.dump.saved import searched

if TYPE_CHECKING:
    import torch

_MOST = 8  # steps
_VIEW = re.compile(r"reinterpret_tensor\w*\(\w*, \(([\d, ]*)\), \(([\d, ]*)\), (\d+)\)")
_WORD = re.compile(r"[a-z0-9]+")
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear"}
# Kernels with one of these words in their names read whole rows, too.
_ROWS = {"softmax", "norm", "mean", "var", "std", "logsumexp", "sum", "amax", "amin", "max", "min"}

Index = tuple[int, ...]


@dataclass(frozen=True)
class _Given:
    """A named input of a launch: its saved value, and where that is from."""

    name: str
    value: torch.Tensor
    source: ValueOrigin | None


def follow(
    run: RunDump, flow: Flow, node: FlowNode, row: TensorRow, what: NonFinite
) -> tuple[ElementStep, ...]:
    """The first element of a result that is NaN ("nan") or infinite ("inf"), and the elements that
    it was made from, back to a launch that made it from finite numbers. Empty if not saved."""
    value = _saved(run, row)
    if value is None:
        return ()
    held = value.isnan() if what == "nan" else value.isinf()
    if not bool(held.any()):
        return ()
    index: Index = tuple(int(x) for x in held.nonzero()[0])
    steps: list[ElementStep] = []
    while len(steps) < _MOST:
        given = list(_given(run, flow, node))
        reads = list(_reads(node, index, tuple(value.shape), given))
        made = Producer.of(node.place, row)
        steps.append(ElementStep(made, row.arg, index, _text(value[index]), tuple(reads)))
        following = _following(flow, given, reads)
        if following is None:
            break
        (node, row, index), before = following, steps[-1]
        saved = _saved(run, row)
        if saved is None or node.step.launch == before.made.launch:
            break
        value = saved
    return tuple(steps)


def _following(
    flow: Flow, given: list[_Given], reads: list[ElementRead]
) -> tuple[FlowNode, TensorRow, Index] | None:
    """The next element to follow: the first one that was read and is not finite."""
    values = {operand.name: operand for operand in given}
    for read in reads:
        one = values[read.name]
        if read.is_finite or read.index is None or one.source is None:
            continue
        node, row = flow.nodes[one.source.step], flow.origin(one.source)
        if row is None or node.step.launch is None or row.shape != tuple(one.value.shape):
            continue
        return node, row, read.index
    return None


def _given(run: RunDump, flow: Flow, node: FlowNode) -> Iterator[_Given]:
    """The floating-point inputs of a launch that were saved."""
    rows = {row.arg: row for row in launched.tensors(launched.reads(flow.rows(node)))}
    for name, sources in node.given.items():
        source = sources[0] if len(sources) == 1 else None
        row = rows.get(name)
        if row is None and source is not None:
            row = flow.origin(source)  # an updated argument, as it was written before
        if row is None or not row.is_floating:
            continue
        value = _saved(run, row)
        if value is not None:
            yield _Given(name, _viewed(value, node.views.get(name, "")), source)


def _viewed(value: torch.Tensor, expression: str) -> torch.Tensor:
    """A tensor as a launch sees it through a view."""
    match = _VIEW.search(expression)
    if match is None:
        return value
    sizes, strides = ([int(x) for x in part.split(",") if x.strip()] for part in match.groups()[:2])
    last = int(match[3]) + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    dense = value.contiguous()
    if 0 in sizes or last >= dense.numel() or dense.stride() != value.stride():
        return value
    return dense.as_strided(sizes, strides, int(match[3]))


def _reads(
    node: FlowNode, index: Index, shape: Index, given: list[_Given]
) -> Iterator[ElementRead]:
    words = set(_WORD.findall(node.step.kernel.lower().replace("_", " ")))
    if words & _PRODUCTS:
        yield from _product(index, shape, given)
        return
    for operand in given:
        own = tuple(operand.value.shape)
        if (place := _broadcast(index, shape, own)) is not None:
            yield _element(operand, place)
            if words & _ROWS and own == shape and len(shape) > 1:
                yield _row(operand, (*place[:-1], None))
        elif (row := _reduced(index, shape, own)) is not None:
            yield _row(operand, row)


def _product(index: Index, shape: Index, given: list[_Given]) -> Iterator[ElementRead]:
    """The row and the column that an element is the product of, and the addends."""
    rows, columns = shape[-2:] if len(shape) > 1 else (0, 0)
    batch = index[:-2]
    factors = [operand for operand in given if operand.value.dim() == len(shape) > 1]
    pair = None
    for a, b in pairwise(factors):
        if a.value.shape[-2:] == (rows, b.value.shape[-2]) and b.value.shape[-1] == columns:
            pair = a, b
    for operand in given:
        if pair is not None and operand is pair[0]:
            yield _row(operand, (*batch, index[-2], None))
        elif pair is not None and operand is pair[1]:
            yield _row(operand, (*batch, None, index[-1]))
        elif (place := _broadcast(index, shape, tuple(operand.value.shape))) is not None:
            yield _element(operand, place)


def _broadcast(index: Index, shape: Index, own: Index) -> Index | None:
    """The index in a tensor of shape `own` that broadcasts to `index` of another shape."""
    if len(own) > len(shape):
        return None
    skipped = len(shape) - len(own)
    if any(size not in (1, whole) for whole, size in zip(shape[skipped:], own, strict=True)):
        return None
    return tuple(0 if size == 1 else at for at, size in zip(index[skipped:], own, strict=True))


def _reduced(index: Index, shape: Index, own: Index) -> tuple[int | None, ...] | None:
    """What is reduced to `index` in a tensor of shape `own`; `None` is a whole dimension."""
    more = len(own) - len(shape)
    if not more and all(whole in (1, size) for whole, size in zip(shape, own, strict=True)):
        axes = zip(index, shape, own, strict=True)
        return tuple(None if whole == 1 and size > 1 else at for at, whole, size in axes)
    if more > 0 and own[: len(shape)] == shape:
        return (*index, *[None] * more)
    return (*[None] * more, *index) if more > 0 and own[more:] == shape else None


def _row(one: _Given, place: tuple[int | None, ...]) -> ElementRead:
    """A summary of many elements: their number and range, and how many are not finite. The index is
    that of the first one that is not finite."""
    row = one.value[tuple(slice(None) if at is None else at for at in place)].reshape(-1)
    counts = {"nan": int(row.isnan().sum()), "inf": int(row.isinf().sum())}
    finite = row[row.isfinite()]
    text = f"{row.numel():,} numbers"
    if finite.numel():
        text += f" from {_text(finite.min())} to {_text(finite.max())}"
    text += "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    shown = ", ".join(":" if at is None else str(at) for at in place)
    index: Index | None = None
    if finite.numel() != row.numel():
        held = ~row.isfinite()
        sizes = [size for at, size in zip(place, one.value.shape, strict=True) if at is None]
        inner = iter([int(x) for x in held.reshape(sizes).nonzero()[0]])
        index = tuple(next(inner) if at is None else at for at in place)
    return ElementRead(one.name, index, f"[{shown}]", text, finite.numel() == row.numel())


def _saved(run: RunDump, row: TensorRow) -> torch.Tensor | None:
    """The saved value of a row, `None` if it cannot be read."""
    tensor = searched(run.path, row)
    return None if tensor is None or tensor.is_complex() else tensor


def _text(value: torch.Tensor) -> str:
    return figure(float(value))


def _element(one: _Given, place: Index) -> ElementRead:
    value = one.value[place]
    return ElementRead(one.name, place, "", _text(value), bool(value.isfinite()))
