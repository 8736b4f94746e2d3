"""Runs a launch under a tool: of a reproduction, or one in C++ of a dump that may lack its values.

Which addresses a kernel uses follows from sizes, and from integers that it reads: numbers of other
types may be random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.core.dtypes import is_floating
from rewriter.reproduction.recorded import recorded_launch
from rewriter.reproduction.reproduce import Reproduction, cut_out, write
from rewriter.reproduction.types import Recorded, Tensor, not_saved, refusal
from rewriter.reproduction.under import asan, gpu_tools
from rewriter.reproduction.under.tool import Tool, UnderResult, not_for

_MOST = 1 << 30  # bytes of what a launch is given


def run_under(made: Reproduction, tool: Tool, *, timeout: float) -> UnderResult:
    """What a tool says of the launch. Raises `RewriterError` where the tool is not there, or has
    nothing to say of such a launch; the script stays."""
    directory = Path(made.directory).absolute()
    arguments = made.variables
    kind = made.recorded.launch.kind
    if (tool == "asan") != (kind == "cpp") and tool != "compute-sanitizer":
        raise not_for(tool, f"it has nothing to watch in this launch, which is of kind {kind}")
    if tool == "asan":
        return asan.run(directory, arguments, timeout=timeout)
    return gpu_tools.run(tool, directory, arguments, timeout=timeout)


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
    if unknown := [x.name for x in read if _is_unknown(x)]:
        raise not_saved(
            f"{recorded.title} reads integers, which may be indices, and their values were not "
            f"saved: {', '.join(unknown)}",
            recorded.launch.index,
        )
    values = {x.name: x.drawn(seed) for seed, x in enumerate(read)}
    if sum(x.nbytes for x in values.values()) > _MOST:
        raise refusal(recorded, "what it is given is larger than 1 GiB, and was not saved")
    given = dict(recorded.given)
    place = folder / "random"
    place.mkdir(parents=True, exist_ok=True)
    for number, tensor in enumerate(read):
        file = place / f"{number}.pt"
        torch.save(values[tensor.name], file)
        given[tensor.name] = replace(tensor, file=file)
    return given, tuple(values)


def _is_unknown(tensor: Tensor) -> bool:
    """Whether a tensor has integers that are not all the same."""
    is_one = tensor.least is not None and tensor.least == tensor.most
    return not (is_floating(tensor.dtype) or tensor.dtype == "bool" or is_one)
