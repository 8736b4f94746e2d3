"""`rewriter run`: run a program, a wrapper or a package, and show what the launches did."""

from __future__ import annotations

from rewriter.commands._click import command
from rewriter.commands._options import ARTIFACT, RUN, programs_argument, refuse_options
from rewriter.commands._selection import ProbedRunOptions
from rewriter.core.errors import RewriterError


class Arguments(ProbedRunOptions):
    artifact: tuple[str, ...] = programs_argument(
        "ARTIFACT | -- COMMAND ...",
        f"{ARTIFACT}; or after -- the command line of a program that calls torch.compile; or a "
        "call that was recorded with its inputs, to run once more: DUMP/rank0/run3",
    )
    print_env: bool = RUN.flag(
        "--print-env",
        "start nothing: print the variables with which any program is probed, for schedulers "
        "and engines that others start",
    )


@command(
    Arguments,
    ("where does the first NaN come from?", "rewriter run -- python train.py"),
    ("look at one kernel", "rewriter run --kernels '*softmax*' --probe print -- python train.py"),
    ("which launches take longest?", "rewriter run --probe time -- python train.py"),
    (
        "all values, of several processes",
        "rewriter run --probe save -- torchrun --nproc-per-node 2 train.py",
    ),
    (
        "a package on inputs that were saved by torch.save",
        "rewriter run model.pt2 --args inputs.pt --probe inputs,print",
    ),
    (
        "one graph of several, on random inputs",
        "rewriter run torch_compile_debug --wrapper backward --probe print",
    ),
    (
        "a wrapper for a GPU on a machine without one",
        "rewriter run output_code.py --interpret --probe print",
    ),
    (
        "a recorded call once more, on the inputs that it had",
        "rewriter run cache.dump/rank0/run6 --probe print",
    ),
    (
        "a program that is looked into later: rewriter control PID set print --calls 3",
        "rewriter run --dormant -- python train.py",
    ),
    (
        "the variables for a service that something else starts",
        "rewriter run --print-env --probe nan -d nan.dump",
    ),
    (
        "the launch that crashes",
        "rewriter run --probe names,sync --blocking --timeout 60 -- python train.py",
    ),
)
def act(arguments: Arguments) -> int:
    from rewriter.commands import _program, _run
    from rewriter.execution import program

    words = arguments.artifact
    if arguments.print_env:
        return _program.print_environment(arguments, (*words, *(arguments.program or ())))
    if arguments.program is not None:
        if words:
            raise RewriterError(
                "several-artifacts",
                f"{words[0]} is in front of --, and a program is behind it",
                hint="Run one of the two.",
            )
        _program.refuse_options_of_artifacts(arguments, "imports interpret")
        return _program.act(arguments, arguments.program)
    if not words:
        program.require(())
    if len(words) > 1:
        raise _program.no_program(words)
    refuse_options(arguments, "dormant", "an artifact is called once, with the probes on")
    return _run.act(arguments, words[0])
