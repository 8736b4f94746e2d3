"""Decides whether a fault changes a value beyond rounding.

It compares the dumps of two runs on the same inputs, of the artifact with and without the fault,
and does not depend on what `rewriter` concludes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.dump.dataflow import Flow
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import TensorRow

if TYPE_CHECKING:
    import torch

    from rewriter.dump.reading import RunDump

# How many units of rounding a result may be off and still count as equal, by the bytes of its type:
# a launch computes several operations in float32, and rounds to a half type once.
_ROUNDINGS = {2: 4, 4: 64, 8: 64}


@dataclass(frozen=True)
class Changed:
    """A result that differs with the fault."""

    launch: int
    arg: str
    roundings: float  # the difference in units of rounding
    beyond: bool  # whether that is more than rounding explains


Results = dict[tuple[int, int], tuple["RunDump", dict[str, TensorRow]]]
RETURNED = -1  # stands for a launch: the outputs of the call


def results(dump: Path) -> Results:
    """The results in a dump by launch and iteration, and under `RETURNED` the call's outputs."""
    found: Results = {}
    for run in open_dump(dump).runs[:1]:
        with suppress(RewriterError):  # a run that crashed may have cut its last line
            for step, rows in run.walk():
                if step.launch is not None:
                    found[step.launch, step.iteration] = run, received.written(rows)
            returned = (x for one in Flow(run).nodes[-1:] for x in one.returned)
            outputs = {x.arg.partition(":")[0]: x for x in returned if isinstance(x, TensorRow)}
            found[RETURNED, 0] = run, outputs
    return found


def changed(clean: Results, faulty: Results, order: Sequence[int] = ()) -> list[Changed]:
    """The results that differ between two runs, in the order of the faulty run.

    `order` has for each launch of the faulty run its index in the clean one; empty if equal.
    """
    found = []
    for (launch, iteration), (run, rows) in faulty.items():
        original = order[launch] if order and launch != RETURNED else launch
        if (original, iteration) not in clean:
            continue
        other, expected = clean[original, iteration]
        for arg, row in rows.items():
            if arg not in expected:
                continue
            try:
                got, right = received.load(run, row), received.load(other, expected[arg])
            except UncheckedError:
                continue  # the run ended while the tensor was being saved
            off = roundings(got, right)
            if off:
                found.append(Changed(launch, arg, off, off > allowed(right)))
    return found


def allowed(tensor: torch.Tensor) -> float:
    """How many units of rounding a result of this type may be off; 0 for integers."""
    return _ROUNDINGS.get(tensor.element_size(), 0) if tensor.is_floating_point() else 0


def roundings(got: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference of an element, in units of rounding of the type at its magnitude.

    The magnitude is taken as at least the root mean square of the tensor, since a small element may
    be the difference of larger ones. Infinite if shapes, integers or non-finite elements differ.
    """
    import torch

    if got.shape != right.shape or got.dtype != right.dtype:
        return math.inf
    if not got.numel():
        return 0.0
    if not got.is_floating_point():
        return 0.0 if bool(got.eq(right).all()) else math.inf
    wide, exact = got.double(), right.double()
    if not torch.equal(wide.isfinite(), exact.isfinite()):
        return math.inf
    difference = (wide - exact).nan_to_num(0.0).abs()
    size = exact.nan_to_num(0.0, 0.0, 0.0).abs()
    scale = size.maximum(size.square().mean().sqrt()).clamp_min(torch.finfo(right.dtype).tiny)
    return float((difference / scale).max() / torch.finfo(right.dtype).eps)
