"""One moment at one launch: what the wrapper handed over there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .statistics import Statistics


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
    repeats: bool
    labels: dict[str, tuple[Label, ...]]

    @classmethod
    def read(cls, row: dict[str, Any]) -> Launch:
        labels: dict[str, tuple[Label, ...]] = {
            phase: tuple(Label(entry[0], entry[1], entry[-1]) for entry in row[phase])
            for phase in ("before", "after")
            if phase in row
        }
        return cls(row["launch"], row["kernel"], row["repeats"], labels)


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


@dataclass
class Event:
    """Everything at one phase of one launch. `iteration` counts the launch's runs in this call.

    The inputs of a call are an event of their own, of the phase "inputs" and without a launch.
    """

    launch: Launch | None
    phase: str
    iteration: int
    values: list[Value] = field(default_factory=list)

    @property
    def about(self) -> str:
        """How messages name it."""
        return self.phase if self.launch is None else f"#{self.launch.index}"

    @property
    def tensors(self) -> list[Value]:
        return [value for value in self.values if value.is_tensor]
