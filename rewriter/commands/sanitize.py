"""`rewriter sanitize`: memory that kernels use and must not."""

from __future__ import annotations

import argparse

from rewriter.commands import _options
from rewriter.commands._parser import Parser, behind_dashes, only_artifact


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="+",
        help="a wrapper or a package, or after -- a program",
    )
    group = parser.group("what is looked for")
    group.add_argument(
        "--only",
        metavar="CHECK[,CHECK…]",
        default="",
        help="only these checks (default: all):\nbounds: stores and reads outside of a buffer\n"
        "poison: reads of memory that nothing wrote\nstale: reads of memory that was released\n"
        "corrupt: memory that changes between launches\nrace: streams that do not wait for each "
        "other",
    )
    group.add_argument(
        "--guard",
        metavar="SIZE",
        default="",
        help="size of the guard bands before and behind each buffer, such as 64K (default: 4096)",
    )
    group.add_argument(
        "--calls", metavar="N[-M][,…]", default="", help="only these calls of a wrapper, from 0"
    )
    _options.add_run_options(parser, programs=True)
    _options.add_old_spelling(parser)
    _options.add_strict_option(parser)
    parser.add_examples(
        ("a program whose numbers are wrong now and then", "rewriter sanitize -- python train.py"),
        ("a package, with its inputs", "rewriter sanitize model.pt2 --args inputs.pt"),
        ("only stores out of bounds", "rewriter sanitize output_code.py --only bounds"),
        (
            "races in the text of a wrapper: nothing is run",
            "rewriter sanitize model.py --only race",
        ),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands import _sanitize

    if (command := behind_dashes(arguments)) is not None:
        return _sanitize.act_program(arguments, command)
    return _sanitize.act_artifact(arguments, only_artifact(arguments, "sanitize"))
