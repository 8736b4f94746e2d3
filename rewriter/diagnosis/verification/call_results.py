"""What a call leaves: the tensors that it returns, and the inputs that it updates.

Several launches may write parts of one tensor, through views: it is put together from these. What
none of them writes is uninitialised memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from msgspec import structs

from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.diagnosis.verification.replacing.layouts import Layout, layouts, view_in
from rewriter.diagnosis.verification.returned_views import ReturnedView, body_of, returned_views
from rewriter.dump import dataflow, launched
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.documents import LaunchRow
from rewriter.dump.reading import RunDump, RunStep
from rewriter.dump.rows import TensorRow, renamed
from rewriter.execution.dumped_wrappers import are_writes_recorded, wrapper_of


@dataclass(frozen=True)
class CallResult:
    """A tensor that a call leaves. `row` has its name, and its type where it was recorded whole;
    `unwritten` marks the elements that no launch wrote, `None` if there are none."""

    row: TensorRow
    tensor: torch.Tensor
    unwritten: torch.Tensor | None = None


class Returned(NamedTuple):
    """A view that a call returns, of what the last writer of its memory left: the row `written`,
    of a step."""

    view: ReturnedView
    tensor: torch.Tensor
    written: TensorRow
    step: RunStep


class CallResults:
    """The results of one recorded call. `last` is the node of what it returns."""

    def __init__(self, run: RunDump, flow: Flow, last: FlowNode) -> None:
        self.run, self.flow, self._last = run, flow, last
        self._inputs = {row.arg: row for row in launched.tensors(run.inputs)}
        self._wrapper = wrapper_of(run)
        self.writers: dict[str, FlowNode] = {}  # the last launch that wrote a buffer
        self._parts: dict[str, list[tuple[TensorRow, LaunchRow]]] = {}
        for node in self.flow.nodes:
            if node.step.launch is None or node.place.scope != last.place.scope:
                continue
            facts = run.launch_row(node.step.launch)
            for name, row in received.written(run.rows(node.step)).items():
                root = launched.buffer_of(facts, name)
                self._parts.setdefault(root, []).append((row, facts))
                self.writers[root] = node

    @property
    def scope(self) -> str:
        """The function that returned."""
        return self._last.place.scope

    def is_written(self, name: str) -> bool:
        """Whether a launch writes a buffer, an input or a weight, or a part of it."""
        return name in self._parts

    def of_input(self, name: str, kind: TensorType | None) -> CallResult:
        """What an input, or a weight of a package, holds in the end."""
        given = self._inputs.get(name)
        parts = self._parts_of(name)
        size = given.size if given is not None else kind and kind.numel
        if parts and parts[-1][0].size == size:
            row = renamed(parts[-1][0], name)
            return CallResult(row, received.load(self.run, row))
        if given is None:
            raise UncheckedError(f"what {name} holds in the end was not recorded")
        before = received.load(self.run, given)
        return self._assembled(given, parts, before) if parts else CallResult(given, before)

    def returned(self, row: TensorRow, kind: TensorType | None) -> CallResult:
        """A returned tensor, of which a row is the result of its last writer."""
        name, position = dataflow.output_variable(row.arg), row.arg
        parts = self._parts_of(name)
        row = renamed(row, name)
        whole = CallResult(row, received.load(self.run, row))
        if kind is None or kind.numel is None or not parts:
            return whole
        if kind.numel <= row.size and self._is_one_of(parts):
            return self._view_of_parts(row, parts, position)
        if kind.numel == row.size:
            return whole
        shape = tuple(x or 0 for x in kind.shape)
        stride = self._stride(name, shape)
        is_seen = bool(stride)  # by a launch that was given all of it
        stride = stride or tuple(x or 0 for x in kind.stride)
        is_larger = row.size > (kind.numel or 0)
        if is_larger and _covers(parts[-1][0], parts):
            return whole  # of a larger buffer, which its last writer wrote as a whole
        if len(parts) == 1 and (is_larger or 0 in (stride or (0,))):
            return whole  # or expanded
        if None in kind.shape or not stride or (not is_seen and None in kind.stride):
            raise UncheckedError(f"how {name} lies in memory is not known")
        if not is_seen and any(_lies_otherwise(part, shape, stride) for part, _ in parts):
            raise UncheckedError(f"how {name} lies in memory is not known")
        row = structs.replace(row, shape=shape, stride=stride, file="")
        return self._assembled(row, parts, None)

    def view(self, label: str) -> ReturnedView | None:
        """The view that is returned as this output, where the text has it."""
        return self._returned_views.get(dataflow.output_position(label))

    def _view_of_parts(
        self, row: TensorRow, parts: Sequence[tuple[TensorRow, LaunchRow]], label: str
    ) -> CallResult:
        """The view that is returned of a buffer of which launches wrote one part each."""
        view = self.view(label)
        if view is None or view.of != row.arg or any(x.dtype != row.dtype for x, _ in parts):
            raise UncheckedError(f"which part of {row.arg} is returned is not known")
        flat = structs.replace(row, stride=(1,), file="")
        starts = (self._offset(part, facts, flat) for part, facts in parts)
        ends = [start + _extent(part) for start, (part, _) in zip(starts, parts, strict=True)]
        where = (view.size, view.stride, view.offset)
        flat = structs.replace(flat, shape=(max(*ends, view.end),))
        found = self._assembled(flat, parts, None)
        unwritten = None if found.unwritten is None else found.unwritten.as_strided(*where)
        if unwritten is not None and not bool(unwritten.any()):
            unwritten = None
        row = structs.replace(flat, shape=view.size, stride=view.stride)
        return CallResult(row, found.tensor.as_strided(*where), unwritten)

    def _is_one_of(self, parts: Sequence[tuple[TensorRow, LaunchRow]]) -> bool:
        """Whether the last of these surely is not all of the memory that launches wrote."""
        starts = [self._start(row, facts) or 0 for row, facts in parts]
        every = (start + _extent(row) for start, (row, _) in zip(starts, parts, strict=True))
        is_last = starts[-1] == 0 and max(every) <= _extent(parts[-1][0])
        return len(parts) > 1 and any(starts) and not is_last

    def as_returned(self, row: TensorRow) -> Returned | None:
        """The view that is returned of what the last writer of a tensor left in memory; `None` if
        the text of the wrapper has none, or that does not begin where the tensor does."""
        if (view := self.view(row.arg)) is None:
            return None
        source = self._last.given[row.arg][0]
        written = self.flow.origin(source)
        if written is None:
            return None
        step = self.flow.nodes[source.step].step
        facts = self.run.launch_row(step.launch)
        part = view_in(_expression(written, facts), {})
        if part is not None and part.offset != "0":
            return None
        taken = view.taken_from(written, received.load(self.run, row))
        return None if taken is None else Returned(view, taken, written, step)

    @cached_property
    def _returned_views(self) -> Mapping[int, ReturnedView]:
        return returned_views(self._wrapper, self._last.place.scope)

    def _parts_of(self, name: str) -> list[tuple[TensorRow, LaunchRow]]:
        """What launches wrote to a buffer. Raises `UncheckedError` if one was not recorded."""
        if name in self.flow.unrecorded:
            raise UncheckedError(f"what else writes {name} was not recorded")
        return self._parts.get(name, [])

    def _stride(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How a buffer lies in memory by what launches were given, where that is not as the graph
        says: a convolution may want it channels-last. Empty if no launch was given all of it."""
        for node in self.flow.nodes:
            for row in received.given(self.run.rows(node.step)).values():
                if row.arg == name and row.shape == shape and row.stride:
                    return tuple(row.stride)
        return ()

    def unwritten_inputs(self, node: FlowNode, launch: int) -> Iterator[tuple[str, torch.Tensor]]:
        """The buffers given to a launch of which no launch wrote a part, and where that is."""
        facts = self.run.launch_row(launch)
        for name, row in received.given(self.run.rows(node.step)).items():
            root = launched.buffer_of(facts, name)
            parts = [] if root in self.flow.unrecorded else self._parts.get(root, [])
            is_whole = any(part.size >= row.size for part, _ in parts)
            if not parts or is_whole or name in self._inputs:
                continue
            try:
                left = self._assembled(structs.replace(row, file=""), parts, None)
            except UncheckedError:
                continue  # how its parts lie in it is not known
            if left.unwritten is not None:
                yield name, left.unwritten

    def _assembled(
        self,
        whole: TensorRow,
        parts: Sequence[tuple[TensorRow, LaunchRow]],
        before: torch.Tensor | None,
    ) -> CallResult:
        """Put a tensor together from what launches wrote into its memory, in their order."""
        if not are_writes_recorded(self.run, self.flow.unrecorded, (whole.arg,)):
            raise UncheckedError(f"what else writes {whole.arg} was not recorded")
        shape, stride = whole.shape, tuple(whole.stride or ())
        dtype = received.load(self.run, parts[0][0]).dtype
        tensor = torch.empty_strided(shape, stride, dtype=dtype).zero_()
        unwritten = torch.empty_strided(shape, stride, dtype=torch.bool).fill_(before is None)
        if before is not None:
            tensor.copy_(before)
        for row, facts in parts:
            part = received.load(self.run, row)
            start = self._offset(row, facts, whole)
            where = (row.shape, tuple(row.stride or part.stride()), start)
            try:
                torch.as_strided(tensor, *where).copy_(part)
                torch.as_strided(unwritten, *where).fill_(False)
            except RuntimeError as error:
                raise UncheckedError(f"{row.arg} is no part of {whole.arg}") from error
        return CallResult(whole, tensor, unwritten if bool(unwritten.any()) else None)

    def _offset(self, row: TensorRow, facts: LaunchRow, whole: TensorRow) -> int:
        """Where a part begins in the memory of its buffer, in elements."""
        start = 0 if _expression(row, facts) == whole.arg else self._start(row, facts)
        if start is None:
            raise UncheckedError(f"where {row.arg} begins in {whole.arg} is not known")
        return start

    def _start(self, row: TensorRow, facts: LaunchRow) -> int | None:
        """Where the view begins that a launch was given to write to; `None` if that is no view, or
        begins at no plain number."""
        view = view_in(_expression(row, facts), {})
        view = view or view_in(launched.variable(row.arg), self._layouts)
        return int(view.offset) if view and view.offset.isdecimal() else None

    @cached_property
    def _layouts(self) -> Mapping[str, Layout]:
        return layouts(body_of(self._wrapper, self._last.place.scope), ())


def _expression(row: TensorRow, facts: LaunchRow) -> str:
    """What a launch was given to write a value to, as the text of the wrapper has it."""
    return next((x[-1] for x in facts.after or () if x[1] == row.arg), row.arg)


def _covers(last: TensorRow, parts: Sequence[tuple[TensorRow, LaunchRow]]) -> bool:
    """Whether what was written last leaves no gap, and is no less than what was written before:
    all of the memory, to another buffer that had it."""
    if len(last.stride or ()) != len(last.shape):
        return False
    return _extent(last) == last.size >= max(part.size for part, _ in parts)


def _extent(row: TensorRow) -> int:
    """How many elements of memory a tensor reaches over."""
    if not row.size or len(row.stride or ()) != len(row.shape):
        return row.size
    return 1 + sum((x - 1) * y for x, y in zip(row.shape, row.stride or (), strict=True))


def _lies_otherwise(part: TensorRow, shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether a slice of a tensor has other strides than that, so that these are not its own."""
    if not part.stride or len(part.shape) != len(shape):
        return False
    axes = list(zip(part.shape, part.stride, shape, stride, strict=True))
    is_slice = all(size <= whole for size, _, whole, _ in axes)
    return is_slice and any(size > 1 and number != other for size, number, _, other in axes)


def unwritten_places(marked: torch.Tensor) -> str:
    """Which elements no launch writes, in words."""
    places = marked.reshape(-1).nonzero().reshape(-1)
    first, final = int(places[0]), int(places[-1])
    some = "elements" if final - first + 1 == places.numel() else "some of the elements"
    return f"{some} {first} to {final} of {marked.numel():,} are written by no launch"
