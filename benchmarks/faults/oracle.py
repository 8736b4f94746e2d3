"""Whether a fault changes a value beyond rounding: the values of two runs, of the artifact with it
and of the one without, on the same inputs. It knows nothing of what `rewriter` concludes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.dump import dataflow
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import TensorRow
from rewriter.verification import received
from rewriter.verification.bounded import UncheckedError

if TYPE_CHECKING:
    import torch

    from rewriter.dump.reading import RunDump

# How many roundings of its type a result may be off by and be explained by them: a launch computes
# in float32 and rounds to a half type once, and has some operations one after another.
_ROUNDINGS = {2: 4, 4: 64, 8: 64}


@dataclass(frozen=True)
class Changed:
    """A result that is another with the fault; `roundings` is how far off, in units of rounding."""

    launch: int
    arg: str
    roundings: float
    beyond: bool


Results = dict[tuple[int, int], tuple["RunDump", dict[str, TensorRow]]]
RETURNED = -1  # in the place of a launch: what the call returned, by its place


def results(dump: Path) -> Results:
    """What each launch of a dump wrote, by launch and iteration, and what the call returned."""
    found: Results = {}
    for run in open_dump(dump).runs[:1]:
        with suppress(RewriterError):  # a run that crashed may have cut its last line
            for step, rows in run.walk():
                if step.launch is not None:
                    found[step.launch, step.iteration] = run, received.written(rows)
            returned = (x for one in dataflow.trace(run)[-1:] for x in one.returned)
            outputs = {x.arg.partition(":")[0]: x for x in returned if isinstance(x, TensorRow)}
            found[RETURNED, 0] = run, outputs
    return found


def changed(clean: Results, faulty: Results, order: Sequence[int] = ()) -> list[Changed]:
    """The results that differ in any bit, in the order in which they were written. `order` maps
    launches of the faulty run to those of the clean one, where they are others."""
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
                continue  # the run ended while it was saved
            off = roundings(got, right)
            if off:
                found.append(Changed(launch, arg, off, off > allowed(right)))
    return found


def allowed(tensor: torch.Tensor) -> float:
    """How many roundings count as the same value."""
    return _ROUNDINGS.get(tensor.element_size(), 0) if tensor.is_floating_point() else 0


def roundings(got: torch.Tensor, right: torch.Tensor) -> float:
    """How far the worst element is off, in roundings of its type at its magnitude, which is at
    least the root of the mean square: small elements may be what is left of larger ones."""
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
