"""`rewriter verify`: which launch does not compute what it claims, without a reference run."""

from __future__ import annotations

import argparse

from rewriter.commands import _options
from rewriter.commands._parser import Parser, behind_dashes, only_artifact


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | DUMP | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="+",
        help="a wrapper or a package, a dump with saved values, or after -- a program",
    )
    _options.add_run_options(parser, programs=True)
    _options.add_old_spelling(parser)
    _options.add_strict_option(parser)
    _add_choice(parser)
    parser.add_examples(
        ("the numbers of a program are wrong", "rewriter verify -- python train.py"),
        (
            "a wrapper and inputs for which it is wrong",
            "rewriter verify output_code.py --args x.pt",
        ),
        ("a recorded run", "rewriter verify cache.dump"),
    )
    parser.set_defaults(act=act)


def _add_choice(parser: Parser) -> None:
    group = parser.group("probes")
    group.add_argument("--kernels", metavar="GLOB[,GLOB…]", help="only launches of these kernels")
    group.add_argument(
        "--calls", metavar="N[-M][,…]", default="", help="only these calls of a wrapper, from 0"
    )
    group.add_argument(
        "--max-bytes", metavar="SIZE", default="", help="save no more than this, such as 10G"
    )
    against = parser.group("what launches are checked against")
    against.add_argument(
        "--graph",
        metavar="PATH",
        help="for a package: what TORCH_COMPILE_DEBUG=1 left when it was compiled",
    )
    against.add_argument(
        "--independent",
        action="store_true",
        help="also run each launch again, C++ kernels also without vectors and Triton kernels with "
        "smaller blocks: the results have to be the same",
    )
    against.add_argument(
        "--reference",
        dest="references",
        metavar="KERNEL=MODULE:FUNCTION",
        action="append",
        default=[],
        help="for a kernel that a user wrote: the function that it has to compute",
    )


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands import _verify

    if (command := behind_dashes(arguments)) is not None:
        return _verify.act_program(arguments, command)
    return _verify.act_artifact(arguments, only_artifact(arguments, "verify"))
