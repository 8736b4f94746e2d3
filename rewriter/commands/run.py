"""`rewriter run`: run a program, a wrapper or a package, and show what the launches did."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.commands import _options as options
from rewriter.commands._parser import Parser, behind_dashes


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="*",
        help=f"{options.ARTIFACT}; or after -- the command line of a program that calls "
        "torch.compile; or a call that was recorded with its inputs, to run once more: "
        "DUMP/rank0/run3",
    )
    options.add_probe_options(parser, runs=True)
    options.add_run_options(parser, programs=True, probes=True)
    options.add_blocking_option(parser)
    options.add_quiet_option(parser)
    options.add_old_spelling(parser)
    parser.group("the run").add_argument(
        "--print-env",
        action="store_true",
        help="start nothing: print the variables with which any program is probed, for schedulers "
        "and engines that others start",
    )
    parser.group("the run").add_argument(
        "--dormant",
        action="store_true",
        help="of a program: the probes (default: all) do nothing until `rewriter control` switches "
        "them on",
    )
    parser.add_examples(
        *options.examples(parser.prog),
        (
            "a package on inputs that were saved by torch.save",
            "rewriter run model.pt2 --args inputs.pt --probe inputs,print",
        ),
        (
            "what a library without its source launches",
            "rewriter run model.so --args inputs.pt",
        ),
        (
            "one graph of several, on random inputs",
            "rewriter run torch_compile_debug --wrapper backward --probe print",
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
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.artifact.recognise import is_library
    from rewriter.commands import _program, _run
    from rewriter.execution import program

    words = arguments.artifact
    if arguments.print_env:
        return _program.print_environment(arguments, words)
    if (command := behind_dashes(arguments)) is not None:
        _program.refuse_artifacts(words[: max(0, len(words) - len(command))])
        _program.refuse_options_of_artifacts(arguments)
        return _program.act(arguments, command)
    if not words:
        program.require(())
    if len(words) > 1:
        raise _program.no_program(words)
    options.refuse_idle(
        {"--dormant": arguments.dormant}, "an artifact is called once, with the probes on"
    )
    if is_library(Path(words[0])):
        from rewriter.commands import _library

        return _library.run(arguments, Path(words[0]))
    return _run.act(arguments, words[0])
