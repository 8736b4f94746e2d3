"""Reads from a dump the values that a launch received, and those that it wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rewriter.core.errors import RewriterError
from rewriter.core.strides import is_dense, memory_order
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.dump import launched, saved
from rewriter.dump.reading import RunDump, RunStep
from rewriter.dump.rows import EventRow, ScalarRow, TensorRow
from rewriter.locate.types import Argument, Launch

_INTEGER = re.compile(r"-?\d{1,18}")
_DTYPES = {
    str(var).removeprefix("torch."): var
    for var in vars(torch).values()
    if isinstance(var, torch.dtype)
}


@dataclass(frozen=True)
class LaunchValues:
    """The tensors that a launch received and wrote, by name, its integer arguments, by their
    expressions, and its statement."""

    run: RunDump
    launch: Launch
    given: Mapping[str, TensorRow]
    written: Mapping[str, TensorRow]
    numbers: Mapping[str, int] = field(default_factory=dict)
    text: str = ""

    @classmethod
    def of(cls, run: RunDump, step: RunStep, launch: Launch, source: bytes) -> LaunchValues:
        rows = run.rows(step)
        scalars = ((x.arg, x.value) for x in rows if isinstance(x, ScalarRow) and x.type == "int")
        numbers = {x: int(n) for x, n in scalars if isinstance(n, str) and _INTEGER.fullmatch(n)}
        point = launch.insertion_point
        text = source[point.start : point.end].decode("utf-8", "replace")
        return cls(run, launch, given(rows), written(rows), numbers, text)

    def load(self, row: TensorRow) -> torch.Tensor:
        """The saved tensor of a row. Raises `UncheckedError` if there is none."""
        return load(self.run, row)

    @property
    def results(self) -> dict[str, Argument]:
        """The arguments that it wrote, by name, each once."""
        found: dict[str, Argument] = {}
        for arg in self.launch.args:
            if arg.role != "in" and arg.name in self.written:
                found.setdefault(arg.name, arg)
        return found


def given(rows: Sequence[EventRow]) -> dict[str, TensorRow]:
    """The tensors that a launch received, by name."""
    before = (x for x in rows if isinstance(x, TensorRow) and x.phase == "before")
    return {row.arg: row for row in before}


def written(rows: Sequence[EventRow]) -> dict[str, TensorRow]:
    """The tensors that a launch wrote, by name."""
    return {row.arg: row for row in launched.tensors(launched.results(rows))}


def dtype_of(row: TensorRow) -> torch.dtype | None:
    """The type of a recorded tensor; `None` if this torch has none of that name."""
    return _DTYPES.get(row.dtype)


def load(run: RunDump, row: TensorRow) -> torch.Tensor:
    """The saved tensor of a row. Raises `UncheckedError` if there is none."""
    if not row.size and row.dtype in _DTYPES:
        return torch.empty(row.shape, dtype=_DTYPES[row.dtype])
    if (path := saved.file_of(run.path, row)) is None:
        why = f": {row.unsaved}" if row.unsaved else ""
        raise UncheckedError(f"{row.arg} was not saved{why}")
    try:
        tensor = saved.load(path)
    except RewriterError as error:
        raise UncheckedError(error.message) from error
    if problem := saved.mismatch(tensor, row):
        raise UncheckedError(f"{row.arg}: {problem}")
    return tensor


def in_memory(tensor: torch.Tensor, row: TensorRow) -> torch.Tensor | None:
    """The elements of a saved tensor in the order of the memory that it was recorded in; `None` if
    there were gaps between them."""
    stride = tuple(row.stride or tensor.stride())
    if not is_dense(row.shape, stride):
        return None
    return tensor.permute(memory_order(row.shape, stride)).reshape(-1).contiguous()


def layouts(
    tensor: torch.Tensor, row: TensorRow, kind: TensorType | None, *, viewed: bool = False
) -> list[torch.Tensor]:
    """The tensor in the shape that the graph gives to its value: one or two candidates.

    A wrapper may pass the same memory in another shape. The order of the elements is then not
    known: by memory address, or by index. `viewed` says that the tensor may be a view even if its
    shape is the same, such as a transposed one.
    """
    shape = None if kind is None else kind.shape
    if shape is None or None in shape or (tuple(tensor.shape) == shape and not viewed):
        return [tensor]
    known = tuple(number for number in shape if number is not None)
    if math.prod(known) != tensor.numel():
        raise UncheckedError(f"{row.arg} has another size than the graph says")
    ways = []
    if kind is not None and None not in kind.stride:
        strides = tuple(number for number in kind.stride if number is not None)
        if is_dense(known, strides) and len(strides) == len(known):
            memory = in_memory(tensor, row)
            ways += [] if memory is None else [memory.as_strided(known, strides)]
    ways.append(tensor.reshape(known))
    return ways
