"""`rewriter repro`: one recorded launch as a script that runs it alone."""

from __future__ import annotations

import argparse
import re

from rewriter.commands._output import emit
from rewriter.commands._parser import Parser
from rewriter.core.errors import OK, RewriterError
from rewriter.core.terminal import message, say

_LAUNCH = re.compile(r"#?(\d+)(?:\.(\d+))?")


def add(parser: Parser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="a dump whose tensors were saved")
    group = parser.group("what to cut out")
    group.add_argument(
        "--launch",
        metavar="N",
        required=True,
        help="the launch's index; 12.1 is the second run of #12 in a loop",
    )
    group.add_argument(
        "--run", metavar="rankN/runN", help="the call (default: the first that has the launch)"
    )
    group.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="have the script import a module, such as one that registers operators "
        "(may be repeated)",
    )
    group.add_argument(
        "--library",
        dest="libraries",
        metavar="FILE.so",
        action="append",
        default=[],
        help="put a shared library beside the script, which loads it: one that registers operators "
        "(may be repeated)",
    )
    output = parser.group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="directory to write (default: repro-<N>-<kernel> in the working directory)",
    )
    output.add_argument("--overwrite", action="store_true", help="replace an existing directory")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_examples(
        (
            "a launch of a dump that `rewriter run --probe save` left",
            "rewriter repro cache.dump --launch 1 -o repro",
        ),
        ("of another call", "rewriter repro cache.dump --launch 1 --run rank0/run3"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.commands._documents.repro import ReproDocument
    from rewriter.reproduction.reproduce import reproduce

    index, iteration = _which(arguments.launch)
    for name in arguments.imports:
        if not all(part.isidentifier() for part in name.split(".")):
            raise RewriterError(
                "bad-module",
                f"--import {name}: no name of a module",
                hint="Expected one such as my_package.my_operators.",
            )
    made = reproduce(
        arguments.dump,
        index,
        arguments.output or _default(arguments.dump, index),
        run=arguments.run,
        iteration=iteration,
        imports=arguments.imports,
        libraries=arguments.libraries,
        overwrite=arguments.overwrite,
    )
    if arguments.json:
        emit(ReproDocument.of(made))
        return OK
    script = made.directory / "repro.py"
    say(f"{made.recorded.title} of {made.recorded.run.name}: {made.directory}")
    message(f"run it with: python {script}")
    return OK


def _which(text: str) -> tuple[int, int]:
    found = _LAUNCH.fullmatch(text)
    if found is None:
        raise RewriterError(
            "bad-launches",
            f"--launch {text}: no index of a launch",
            hint="Expected a number such as 3, or 3.1 for the second run of it in a loop.",
        )
    return int(found[1]), int(found[2] or 0)


def _default(dump: str, index: int) -> str:
    from rewriter.dump.reading import open_dump

    kernels = (
        step.kernel for run in open_dump(dump).runs for step in run.steps if step.launch == index
    )
    kernel = re.sub(r"[^\w.]", "_", next(kernels, "launch"))[:60]
    return f"repro-{index}-{kernel}"
