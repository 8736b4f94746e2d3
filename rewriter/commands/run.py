"""`rewriter run`: run a program, a wrapper or a package, and show what the launches did."""

from __future__ import annotations

import argparse
import shlex

from rewriter.artifact.types import Artifact
from rewriter.commands import _program, _run
from rewriter.commands._common import (
    ARTIFACT,
    add_blocking_option,
    add_probe_options,
    refuse_idle,
)
from rewriter.commands._parser import Parser
from rewriter.core.errors import RewriterError
from rewriter.execution import replay
from rewriter.instrumentation import api


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="*",
        help=f"{ARTIFACT}; or behind -- a program that calls torch.compile, as you would type it; "
        "or a call that a dump recorded with its inputs, DUMP/rank0/run3: it is run once more",
    )
    add_probe_options(parser)
    _run.add_run_options(parser)
    add_blocking_option(parser)
    _program.add_quiet_option(parser)
    _program.add_program_options(parser)
    parser.add_examples(
        *_program.examples(parser.prog),
        (
            "a package on inputs of its own, saved by torch.save",
            "rewriter run model.pt2 --args inputs.pt --probe inputs,print",
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
            "the launch that crashes",
            "rewriter run --probe names,sync --blocking --timeout 60 -- python train.py",
        ),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    if (command := _program.behind_dashes(arguments)) is not None:
        return program(arguments, command)
    if len(arguments.artifact) != 1:
        raise _program.no_program(arguments.artifact)
    _program.refuse_options_of_programs(arguments)
    if replay.is_dump(arguments.artifact[0]):
        return _call(arguments)
    return _run.act(arguments, open_artifact(arguments))


def _call(arguments: argparse.Namespace) -> int:
    """Run a call that a dump recorded once more."""
    (arguments.artifact,) = arguments.artifact
    given = {
        "--args": arguments.args,
        "--model": arguments.models,
        "--wrapper": arguments.wrappers,
    }
    refuse_idle(given, "a recorded call has its own", "Drop the option.")
    recorded = replay.open_call(arguments.artifact)
    return _run.act(arguments, recorded.artifact, recorded)


def program(arguments: argparse.Namespace, command: tuple[str, ...]) -> int:
    """Run what stands behind `--`."""
    words = arguments.artifact[: max(0, len(arguments.artifact) - len(command))]
    if words:
        raise RewriterError(
            "several-artifacts",
            f"{words[0]} stands in front of --, and a program behind it",
            hint="Run one of the two.",
        )
    _program.refuse_options_of_artifacts(arguments)
    return _program.act(arguments, command)


def open_artifact(arguments: argparse.Namespace) -> Artifact:
    """The wrapper that the command line names. Of a program it says how that is run."""
    (arguments.artifact,) = arguments.artifact
    try:
        artifact = api.open(arguments.artifact, models=arguments.models)
    except RewriterError as error:
        if error.slug != "not-a-wrapper" or not arguments.artifact.endswith(".py"):
            raise
        verb = shlex.split(arguments.command_line)[1]
        command = shlex.join(["rewriter", verb, "--", "python", arguments.artifact])
        hint = f"If it is a program that calls torch.compile: {command}"
        raise RewriterError(error.slug, error.message, hint=hint) from error
    return artifact.choose(arguments.wrappers)
