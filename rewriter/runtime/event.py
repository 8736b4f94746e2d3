"""An event: the values that a wrapper passes at one point of a call, and their measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .statistics import Record, Statistics, collect, has_memory

HEAD = 64  # the most elements of a tensor that are printed, as upstream does


@dataclass(frozen=True)
class Label:
    """The table's entry for one value: its role, its short name, its source text."""

    role: str
    name: str
    expr: str


@dataclass(frozen=True)
class ProbedLaunch:
    """The table's entry for one launch."""

    index: int
    kernel: str
    kind: str
    repeats: bool  # whether it stands in a loop, so that a call may run it several times
    labels: dict[str, tuple[Label, ...]]  # by phase, in the order of the values
    # Nothing writes or frees the values passed after this launch until those of the next launch are
    # passed: one kernel may measure both.
    together: bool = False
    # The work of the memory line after this launch (`checked`) may wait for the next memory line.
    memory_waits: bool = False

    @classmethod
    def read(cls, row: dict[str, Any]) -> ProbedLaunch:
        """Parse a row of the table in the wrapper's header."""
        labels: dict[str, tuple[Label, ...]] = {
            phase: tuple(Label(entry[0], entry[1], entry[-1]) for entry in row[phase])
            for phase in ("before", "after")
            if phase in row
        }
        marks = (row.get(mark, False) for mark in ("together", "memory_waits"))
        kind = row.get("kind", "")
        return cls(row["launch"], row["kernel"], kind, row["repeats"], labels, *marks)


@dataclass
class Value:
    """One value of an event: a tensor, or the text of a scalar or other object.

    `content` is set to None at the end of the event, so that probing never keeps a buffer alive.
    """

    label: Label
    content: Any
    kind: str  # "tensor", or the name of the type
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()  # in elements
    dtype: torch.dtype | None = None
    device: str = ""
    statistics: Statistics | None = None  # may be set later than the other fields
    head: list[Any] | None = None  # the first elements
    text: str = ""  # `repr` of a value that is no tensor
    fingerprint: str = ""  # of all elements: cpp/engine/fingerprint.h
    file: str = ""  # where the tensor was saved, relative to the call's directory
    unsaved: str = ""  # why the probe `save` did not write a file

    @classmethod
    def read(cls, label: Label, content: Any) -> Iterator[Value]:
        """Yield the value, or each member of a list of values; nothing for None."""
        if isinstance(content, torch.Tensor):
            yield cls(
                label,
                content.detach(),
                "tensor",
                tuple(content.shape),
                tuple(content.stride()) if content.layout is torch.strided else (),
                content.dtype,
                str(content.device),
            )
        elif isinstance(content, (list, tuple)):
            for position, member in enumerate(content):
                inner = Label(label.role, f"{label.name}[{position}]", f"{label.expr}[{position}]")
                yield from cls.read(inner, member)
        elif content is not None:
            yield cls(label, content, type(content).__name__, text=repr(content))

    @property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"

    @property
    def facts(self) -> str:
        """All that was recorded of the value, as text: equal if the value did not change."""
        about = (self.kind, self.text, self.shape, self.stride, self.dtype, self.device)
        return repr((*about, self.statistics, self.head, self.fingerprint))


@dataclass
class Event:
    """One phase of one launch, with its values; or the inputs of a call."""

    launch: ProbedLaunch | None  # None for the inputs
    phase: str  # "before", "after" or "inputs"
    iteration: int  # how often the launch ran earlier in this call
    call: int  # the number of the call in this process
    values: list[Value] = field(default_factory=list)
    error: str = ""  # why nothing can be read from the device
    captured: bool = False  # issued into a CUDA graph: the statistics are those of a replay
    # What is wrong with inputs, by name; under an empty name, with the inputs as a whole.
    unexpected: dict[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The name of the event in messages: `#12`, or `inputs`."""
        return self.phase if self.launch is None else f"#{self.launch.index}"

    @property
    def tensors(self) -> list[Value]:
        return [value for value in self.values if value.is_tensor]


Pending = tuple[Event, list[Record | None]]
"""An event, and for each of its tensors the statistics that are still on the device."""


def fetch_statistics(pending: Sequence[Pending]) -> None:
    """Copy the statistics of these events to the host, in one transfer per device."""
    statistics = iter(collect([record for _, records in pending for record in records]))
    for event, _ in pending:
        for value in event.tensors:
            later = next(statistics)
            value.statistics = value.statistics if later is None else later


def measure_now(event: Event) -> None:
    """Measure those tensors of an event that have no statistics yet, and wait for the result."""
    from .engine import measure

    values = [value for value in event.tensors if value.statistics is None]
    for value, known in zip(values, measure([x.content for x in values]), strict=True):
        value.statistics = known.statistics


def first_values(tensor: torch.Tensor) -> list[Any] | None:
    """The first `HEAD` elements in logical order; None for a tensor that cannot be read.

    Only these are copied to the host.
    """
    if tensor.is_quantized or tensor.layout is not torch.strided or not has_memory(tensor):
        return None
    if tensor.numel() == 0:
        return []
    while tensor.dim() > 1 and tensor[0].numel() >= HEAD:
        tensor = tensor[0]
    if tensor.dim():
        tensor = tensor[: -(-HEAD // tensor[0].numel())].flatten()[:HEAD]
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)
    values = tensor.tolist()
    return values if isinstance(values, list) else [values]
