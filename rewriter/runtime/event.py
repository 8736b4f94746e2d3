"""One moment at one launch: what the wrapper handed over there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from .statistics import Record, Statistics, has_memory
from .text import HEAD

if TYPE_CHECKING:
    from .capture import Capture
    from .dump import Run


@dataclass(frozen=True)
class Label:
    """What the table says of one value: its role, its short name, its source text."""

    role: str
    name: str
    expr: str


@dataclass(frozen=True)
class Launch:
    """What the table says of one launch; `labels` are per phase, in the order of the values."""

    index: int
    kernel: str
    kind: str
    repeats: bool
    labels: dict[str, tuple[Label, ...]]

    @classmethod
    def read(cls, row: dict[str, Any]) -> Launch:
        labels: dict[str, tuple[Label, ...]] = {
            phase: tuple(Label(entry[0], entry[1], entry[-1]) for entry in row[phase])
            for phase in ("before", "after")
            if phase in row
        }
        return cls(row["launch"], row["kernel"], row.get("kind", ""), row["repeats"], labels)


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
    sha256: str = ""
    file: str = ""

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
    def found(self) -> str:
        """All that was found out about it: the same for a value that did not change."""
        about = (self.kind, self.text, self.shape, self.stride, self.dtype, self.device)
        return repr((*about, self.statistics, self.head, self.sha256))


@dataclass
class Call:
    """One call of the wrapper in one thread; `number` counts them from 0, in this process.

    `started` is a reading of `perf_counter_ns`. `runs` counts how often each phase of each launch
    came, `pending` are the events whose statistics are still on their device, `later` is what waits
    for the end of the call. `zeros` are for the probe `time`: per device an event and when that
    was, in microseconds from the start of the call. `shown` is what was last shown before a launch:
    which one, and what was found of each value, by name.
    """

    directory: Run | None = None
    number: int = 0
    is_wanted: bool = True
    started: int = field(default_factory=perf_counter_ns)
    runs: Counter[tuple[int, str]] = field(default_factory=Counter)
    pending: list[tuple[Event, list[Record | None]]] = field(default_factory=list)
    later: list[tuple[Event, Callable[[], None]]] = field(default_factory=list)
    zeros: dict[Any, tuple[Any, float]] = field(default_factory=dict)
    capture: Capture | None = None
    shown: tuple[tuple[Launch | None, int], dict[str, str]] = ((None, 0), {})


@dataclass
class Event:
    """Everything at one phase of one launch. `iteration` counts the launch's runs in this call.

    The inputs of a call are an event of their own, of the phase "inputs" and without a launch.
    `unexpected` is what is wrong with them by name, or under an empty one with all of them.
    `error` is what is wrong with the device, so that nothing can be read. `captured` is what was
    issued into a CUDA graph: its statistics are those of a replay.
    """

    launch: Launch | None
    phase: str
    iteration: int
    call: Call
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

    def fresh(self, values: Sequence[Value]) -> list[Value]:
        """Those of its values that are to be shown.

        What a launch only reads was shown before it, and is shown again after it only where it is
        not what it was: something wrote out of bounds, or the wrapper does not say all.
        """
        which = (self.launch, self.iteration)
        if self.phase == "before":
            self.call.shown = (which, {value.label.name: value.found for value in values})
        if self.phase != "after" or self.call.shown[0] != which:
            return list(values)
        before = self.call.shown[1]
        return [
            value
            for value in values
            if value.label.role != "in" or before.get(value.label.name) != value.found
        ]


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
