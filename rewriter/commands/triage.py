"""`rewriter triage`: why does it crash, in one command.

The steps are those of AOTInductor's debugging guide (in torch's docs/source,
torch.compiler_aot_inductor_debugging_guide.md), for any artifact, and for a program through
Inductor's cache: does it crash, does it with launches that are waited for, and in which launch.
"""

from __future__ import annotations

from rewriter.commands._click import command, later
from rewriter.commands._options import RunOptions, programs_argument, wrapper_option


class Arguments(RunOptions):
    artifact: tuple[str, ...] = programs_argument(
        "ARTIFACT | DUMP | -- COMMAND ...",
        "a wrapper, a package or a dump, or after -- a program that calls torch.compile",
    )
    wrappers: tuple[str, ...] = wrapper_option()


@command(
    Arguments,
    ("a program that crashes", "rewriter triage -- python train.py"),
    ("one that hangs", "rewriter triage --timeout 60 -- python train.py"),
    ("what the probe record left of a process", "rewriter triage flight.dump"),
    ("a package and the inputs that crash it", "rewriter triage model.pt2 --args bad.pt"),
)
def act(arguments: Arguments) -> int:
    return later("_triage", arguments)
