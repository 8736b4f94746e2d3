"""`rewriter diagnose`: what is wrong with it, in one command."""

from __future__ import annotations

from rewriter.commands._click import Section, command, later
from rewriter.commands._options import (
    OUTPUT,
    PROBES,
    TextOptions,
    graph_option,
    kernels_option,
    programs_argument,
)

_CORRECT = Section("what is correct")


class Arguments(TextOptions):
    artifact: tuple[str, ...] = programs_argument(
        "ARTIFACT | DUMP | -- COMMAND ...",
        "a wrapper or a package, a dump with saved values, or after -- a program",
    )
    expected: str | None = _CORRECT.option(
        "--expected FILE.pt",
        "the expected outputs: a tensor, or a list of tensors, saved by torch.save",
    )
    against: str | None = _CORRECT.option(
        "--against ARTIFACT|DUMP|eager",
        "a correct artifact, the dump of a correct run, or eager: in a program, its compiled "
        "functions as plain Python (the first 3 calls of each run once more, on copies of all that "
        "they reach; what they print or write happens again); and the outputs that torch's "
        "operators compute for the graph of each call",
    )
    graph: str | None = graph_option(_CORRECT)
    kernels: str | None = kernels_option()
    max_bytes: str = PROBES.option(
        "--max-bytes SIZE",
        "how much one run may save, such as 10G; more values take further runs (default: 4G, "
        "at most half of the free space)",
        default="",
    )
    bundle: str | None = OUTPUT.option(
        "--bundle FILE.zip",
        "also write an archive for a bug report: verdict, the launch as a script, graph, wrapper "
        "and versions; without names of people and folders, and without recorded values",
    )
    weights: bool = OUTPUT.flag("--weights", "put the values of the launch into that archive")
    output: str | None = OUTPUT.option("-o, --output FILE.html", "also write the report of the run")


@command(
    Arguments,
    ("something is wrong with a program", "rewriter diagnose -- python train.py"),
    (
        "a package, with inputs for which it is wrong, and the correct outputs",
        "rewriter diagnose model.pt2 --args inputs.pt --expected outputs.pt",
    ),
    ("it hangs", "rewriter diagnose --timeout 120 -- python train.py"),
    ("against a correct wrapper", "rewriter diagnose new.py --against old.py"),
)
def act(arguments: Arguments) -> int:
    return later("_diagnose", arguments)
