"""`rewriter verify`: which launch does not compute what it claims, without a reference run."""

from __future__ import annotations

from rewriter.commands._click import Section, command, later
from rewriter.commands._options import (
    PROBES,
    CheckOptions,
    graph_option,
    kernels_option,
    programs_argument,
)

_CHECKED = Section("what launches are checked against")


class Arguments(CheckOptions):
    artifact: tuple[str, ...] = programs_argument(
        "ARTIFACT | DUMP | -- COMMAND ...",
        "a wrapper or a package, a dump with saved values, or after -- a program",
    )
    kernels: str | None = kernels_option()
    max_bytes: str = PROBES.option(
        "--max-bytes SIZE", "save no more than this, such as 10G", default=""
    )
    graph: str | None = graph_option(_CHECKED)
    independent: bool = _CHECKED.flag(
        "--independent",
        "also run each launch again, C++ kernels also without vectors and Triton kernels with "
        "smaller blocks: the results have to be the same",
    )
    references: tuple[str, ...] = _CHECKED.option(
        "--reference KERNEL=MODULE:FUNCTION",
        "for a kernel that a user wrote: the function that it has to compute",
        multiple=True,
    )


@command(
    Arguments,
    ("the numbers of a program are wrong", "rewriter verify -- python train.py"),
    ("a wrapper and inputs for which it is wrong", "rewriter verify output_code.py --args x.pt"),
    ("a recorded run", "rewriter verify cache.dump"),
)
def act(arguments: Arguments) -> int:
    return later("_verify", arguments)
