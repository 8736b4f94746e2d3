"""The commands that are typed next about a launch: the same on the terminal and on a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from rewriter.comparison.dumps.types import Comparison
from rewriter.dump.reading import label
from rewriter.dump.rows import TensorRow, ValueRow

ALONE = "this launch alone"
_FIRST = "rank0/run0"  # the first call of each dump that has it: the one that `repro` takes


def alone(dump: str | Path, run: str, launch: str) -> str:
    """The command that makes a script of a launch; `launch` is its number, such as `#12`."""
    call = f" --run {run}" if run != _FIRST else ""
    return f"rewriter repro {shlex.quote(str(dump))} --launch {launch.removeprefix('#')}{call}"


def is_saved(read: Iterable[ValueRow]) -> bool:
    """Whether a script can be made of a launch that read these values."""
    files = [row.file for row in read if isinstance(row, TensorRow)]
    return bool(files) and all(files)


def after_comparison(comparison: Comparison) -> tuple[str, str] | None:
    """What to type about the launch at which two dumps differ first, and what for: scripts of it,
    or where its values were not saved, both programs once more, and what compares these."""
    first = next(iter(comparison.culprits), None)
    if first is None or not (first.a and first.b) or first.place.launch is None:
        return None
    places = (first.a, first.b)
    of_a, of_b = (label(x.launch or 0, x.iteration) for x in places)
    if all(is_saved(getattr(x, side) for x in first.reads) for side in "ab"):
        a, b = alone(comparison.a, first.a.run, of_a), alone(comparison.b, first.b.run, of_b)
        return f"{a} -o repro-a\n{b} -o repro-b", f"{ALONE}, from each dump"
    manifests = (comparison.manifest_a, comparison.manifest_b)
    programs = [(x.command or "").partition(" -- ")[2] for x in manifests]
    of_ranks = comparison.b.name.removeprefix("rank").isdecimal()
    if not all(programs):
        return None
    made = (
        [f"ranks-{of_a[1:]}.dump"] * 2 if of_ranks else [f"a-{of_a[1:]}.dump", f"b-{of_b[1:]}.dump"]
    )
    again = (
        f"rewriter run --probe save --args all --launches {place.launch} -d {dump} -- {program}"
        for place, dump, program in zip(places, made, programs, strict=True)
    )
    compared = f"rewriter compare {made[0]} {'--ranks' if of_ranks else made[1]}"
    return "\n".join(dict.fromkeys([*again, compared])), "to see by how much, and from which values"
