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
    parser.takes = "ARTIFACT | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="+",
        help="a wrapper or a package, or after -- a program that calls torch.compile",
    )
    add_run_options(parser)
    parser.add_examples(
        ("a program that crashes", "rewriter triage -- python train.py"),
        ("one that hangs", "rewriter triage --timeout 60 -- python train.py"),
        ("a package and the inputs that crash it", "rewriter triage model.pt2 --args bad.pt"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands import _triage_artifact, _triage_program

    if (command := behind_dashes(arguments)) is not None:
        return _triage_program.act(arguments, command)
    return _triage_artifact.act(arguments, only_artifact(arguments, "triage"))
