"""One moment of a call: what the wrapper handed over there, and what the probes learn about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .statistics import Record, Statistics, collect, has_memory

HEAD = 64  # values shown at most, as upstream does


@dataclass(frozen=True)
class Label:
    """What the table says of one value: its role, its short name, its source text."""

    role: str
    name: str
    expr: str


@dataclass(frozen=True)
class ProbedLaunch:
    """What the table says of one launch; `labels` are per phase, in the order of the values.

    `together`: nobody writes or frees what the line behind it hands over before the line behind
    the next launch is reached. `memory_waits`: what is done to memory behind it waits for the next
    line about memory.
    """

    index: int
    kernel: str
    kind: str
    repeats: bool
    labels: dict[str, tuple[Label, ...]]
    together: bool = False
    memory_waits: bool = False

    @classmethod
    def read(cls, row: dict[str, Any]) -> ProbedLaunch:
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
    """A value as it is at the event.

    What must outlive the event is copied out when it is made: `content` is dropped as soon as the
    event is over, so that probing never keeps a buffer alive. `statistics` come later.
    """

    label: Label
    content: Any
    kind: str
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    device: str = ""
    statistics: Statistics | None = None
    head: list[Any] | None = None
    text: str = ""
    fingerprint: str = ""  # of all elements: cpp/engine/fingerprint.h
    file: str = ""
    unsaved: str = ""  # why there is no file, where the probe `save` was to write one

    @classmethod
    def read(cls, label: Label, content: Any) -> Iterator[Value]:
        """The value, or the members of a list of values; `None` is no value."""
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
        """All that is known about it: the same text for a value that did not change."""
        about = (self.kind, self.text, self.shape, self.stride, self.dtype, self.device)
        return repr((*about, self.statistics, self.head, self.fingerprint))


@dataclass
class Event:
    """Everything at one phase of one launch.

    `call` is the number of the call in this process, `iteration` counts the launch's runs in it.
    The inputs of a call are an event of their own, of the phase "inputs" and without a launch.
    `unexpected` is what is wrong with them by name, or under an empty one with all of them.
    `error` is what is wrong with the device, so that nothing can be read. `captured` is what was
    issued into a CUDA graph: its statistics are those of a replay.
    """

    launch: ProbedLaunch | None
    phase: str
    iteration: int
    call: int
    values: list[Value] = field(default_factory=list)
    error: str = ""
    captured: bool = False
    unexpected: dict[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """How messages name it."""
        return self.phase if self.launch is None else f"#{self.launch.index}"

    @property
    def tensors(self) -> list[Value]:
        return [value for value in self.values if value.is_tensor]


Pending = tuple[Event, list[Record | None]]
"""An event, and for each of its tensors the statistics that are still on their device."""


def fetch_statistics(pending: Sequence[Pending]) -> None:
    """Bring the statistics of these events to the host, in one transfer per device."""
    statistics = iter(collect([record for _, records in pending for record in records]))
    for event, _ in pending:
        for value in event.tensors:
            later = next(statistics)
            value.statistics = value.statistics if later is None else later


def measure_now(event: Event) -> None:
    """Measure the statistics of an event's tensors with the engine, and wait for them.

    Those that are known are not read again.
    """
    from .engine import measure

    values = [value for value in event.tensors if value.statistics is None]
    for value, known in zip(values, measure([x.content for x in values]), strict=True):
        value.statistics = known.statistics


def first_values(tensor: torch.Tensor) -> list[Any] | None:
    """The first values in logical order, read without copying the rest; `None` if unreadable."""
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
