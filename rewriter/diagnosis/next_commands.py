"""The commands that are typed next about a launch: the same on the terminal and on a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from rewriter.comparison.dumps.types import Comparison, LaunchComparison
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


def after_comparison(
    comparison: Comparison, differs: LaunchComparison | None
) -> tuple[str, str] | None:
    """What to type about the launch at which two dumps differ first, and what for: scripts of it,
    or where its values were not saved, both programs once more, and what compares these."""
    if differs is None or differs.place.launch is None:
        return None
    sides = (("a", comparison.a, differs.a), ("b", comparison.b, differs.b))
    there = [
        (side, dump, place, label(place.launch or 0, place.iteration))
        for side, dump, place in sides
        if place is not None
    ]
    if all(is_saved(getattr(x, side) for x in differs.reads) for side, *_ in there):
        scripts = (f"{alone(dump, x.run, of)} -o repro-{side}" for side, dump, x, of in there)
        return "\n".join(scripts), f"{ALONE}, from each dump" if differs.matched else ALONE
    commands = (comparison.manifest_a.command, comparison.manifest_b.command)
    programs = [(command or "").partition(" -- ")[2] for command in commands]
    if not differs.matched or not all(programs):
        return None
    # The ranks of one program are in one dump.
    is_one = comparison.a.parent == comparison.b.parent and comparison.a.name.startswith("rank")
    made = [f"{'ranks' if is_one else side}-{of[1:]}.dump" for side, _, _, of in there]
    again = (
        f"rewriter run --probe save --args all --launches {place.launch} -d {name} -- {program}"
        for name, program, (_, _, place, _) in zip(made, programs, there, strict=True)
    )
    compared = f"rewriter compare {made[0]} {'--ranks' if is_one else made[1]}"
    return "\n".join(dict.fromkeys((*again, compared))), "to see by how much, and from which values"
