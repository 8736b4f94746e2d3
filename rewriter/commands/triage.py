"""`rewriter triage`: why does it crash, in one command.

The steps are those of AOTInductor's debugging guide (in torch's docs/source,
torch.compiler_aot_inductor_debugging_guide.md), for any artifact, and for a program through
Inductor's cache: does it crash, does it with launches that are waited for, and in which launch.
"""

from __future__ import annotations

import argparse

from rewriter.commands._options import add_run_options
from rewriter.commands._parser import Parser, behind_dashes, only_artifact


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | DUMP | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="+",
        help="a wrapper, a package or a dump, or after -- a program that calls  torch.compile",
    )
    add_run_options(parser)
    parser.add_examples(
        ("a program that crashes", "rewriter triage -- python train.py"),
        ("one that hangs", "rewriter triage --timeout 60 -- python train.py"),
        ("what the probe record left of a process", "rewriter triage flight.dump"),
        ("a package and the inputs that crash it", "rewriter triage model.pt2 --args bad.pt"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands import _triage_artifact, _triage_dump, _triage_program
    from rewriter.dump.reading import is_dump

    if (command := behind_dashes(arguments)) is not None:
        return _triage_program.act(arguments, command)
    path = only_artifact(arguments, "triage")
    if is_dump(path):
        return _triage_dump.act(arguments, path)
    return _triage_artifact.act(arguments, path)
