"""`rewriter diagnose`: what is wrong with it, in one command."""

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
    reference = parser.group("what is correct")
    reference.add_argument(
        "--expected",
        metavar="FILE.pt",
        help="the expected outputs: a tensor, or a list of tensors, saved by torch.save",
    )
    reference.add_argument(
        "--against",
        metavar="ARTIFACT|DUMP|eager",
        help="a correct artifact, the dump of a correct run, or eager: in a program, its compiled "
        "functions as plain Python (the first 3 calls of each run once more, on copies of all that "
        "they reach; what they print or write happens again); and the outputs that torch's "
        "operators compute for the graph of each call",
    )
    reference.add_argument(
        "--graph",
        metavar="PATH",
        help="for a package: what TORCH_COMPILE_DEBUG=1 left when it was compiled",
    )
    _options.add_run_options(parser, programs=True)
    _options.add_old_spelling(parser)
    _options.add_strict_option(parser)
    group = parser.group("probes")
    group.add_argument("--kernels", metavar="GLOB[,GLOB…]", help="only launches of these kernels")
    group.add_argument(
        "--calls", metavar="N[-M][,…]", default="", help="only these calls of a wrapper, from 0"
    )
    group.add_argument(
        "--max-bytes",
        metavar="SIZE",
        default="",
        help="how much one run may save, such as 10G; more values take further runs (default: 4G, "
        "at most half of the free space)",
    )
    parser.group("output").add_argument(
        "-o", "--output", metavar="FILE.html", help="also write the report of the run"
    )
    parser.add_examples(
        ("something is wrong with a program", "rewriter diagnose -- python train.py"),
        (
            "a package, with inputs for which it is wrong, and the correct outputs",
            "rewriter diagnose model.pt2 --args inputs.pt --expected outputs.pt",
        ),
        ("it hangs", "rewriter diagnose --timeout 120 -- python train.py"),
        ("against a correct wrapper", "rewriter diagnose new.py --against old.py"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands import _diagnose

    if (command := behind_dashes(arguments)) is not None:
        return _diagnose.act_program(arguments, command)
    return _diagnose.act_artifact(arguments, only_artifact(arguments, "diagnose"))
