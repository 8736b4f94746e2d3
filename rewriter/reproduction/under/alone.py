"""A C++ launch of a dump under AddressSanitizer, also if the dump does not have its values.

Which addresses a kernel uses follows from sizes, and from integers that it reads: numbers of other
types may be random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.reproduction.cutting import cut_out
from rewriter.reproduction.recorded import recorded_launch
from rewriter.reproduction.refusal import not_saved, refusal
from rewriter.reproduction.reproduce import write
from rewriter.reproduction.types import Recorded, Tensor
from rewriter.reproduction.under.running import run_under
from rewriter.reproduction.under.types import UnderResult

if TYPE_CHECKING:
    import torch

_MOST = 1 << 30  # bytes of what a launch is given


@dataclass(frozen=True)
class Alone:
    """What AddressSanitizer says of a launch; `made_up` are the arguments with random values."""

    result: UnderResult
    made_up: tuple[str, ...]


def run_alone(
    dump: Path, run: str, launch: int, iteration: int, folder: Path, *, timeout: float
) -> Alone:
    """Run a launch by itself under AddressSanitizer, in a folder that keeps all it takes.

    Arguments have the values that were saved, or else random ones between the extremes that were
    recorded. Raises `RewriterError` if it cannot be cut out, if it reads integers that were not
    saved, or if the tool is not there.
    """
    recorded = recorded_launch(dump, launch, run=run, iteration=iteration, needs_values=False)
    given, made_up = _with_values(recorded, folder)
    recorded = replace(recorded, given=given)
    made = write(recorded, cut_out(recorded), folder)
    return Alone(run_under(made, "asan", timeout=timeout), made_up)


def _with_values(recorded: Recorded, folder: Path) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """What the launch is given, all of it with files, and the names of those that are random."""
    import torch

    read = [x for x in recorded.given.values() if x.role != "out" and x.file is None]
    values = {x.name: _random(x, seed) for seed, x in enumerate(read)}
    unknown = [name for name, value in values.items() if value is None]
    if unknown:
        raise not_saved(
            f"{recorded.title} reads integers, which may be indices, and their values were not "
            f"saved: {', '.join(unknown)}",
            recorded.launch.index,
        )
    if sum(x.nbytes for x in values.values() if x is not None) > _MOST:
        raise refusal(recorded, "what it is given is larger than 1 GiB, and was not saved")
    given = dict(recorded.given)
    place = folder / "random"
    place.mkdir(parents=True, exist_ok=True)
    for number, tensor in enumerate(read):
        file = place / f"{number}.pt"
        torch.save(values[tensor.name], file)
        given[tensor.name] = replace(tensor, file=file)
    return given, tuple(values)


def _random(tensor: Tensor, seed: int) -> torch.Tensor | None:
    """Random values between the extremes of a tensor; `None` for integers that are not all the
    same. Raises `RewriterError` if torch has no such dtype."""
    import torch

    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise RewriterError(
            "corrupt-dump",
            f"this torch has no dtype {tensor.dtype}",
            hint="Use the torch that recorded the dump.",
        )
    generator = torch.Generator().manual_seed(seed)
    least, most = tensor.least, tensor.most
    if dtype.is_floating_point or dtype.is_complex:
        least, most = (0.0, 1.0) if least is None or most is None else (least, most)
        drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return (least + (most - least) * drawn).to(dtype)
    if dtype == torch.bool:
        return torch.rand(tensor.shape, generator=generator) < 0.5
    if least is None or least != most:
        return None
    return torch.full(tensor.shape, int(least), dtype=dtype)
