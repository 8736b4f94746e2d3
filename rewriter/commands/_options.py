"""The options that several commands share. Adding them imports nothing heavy."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import get_args

from rewriter.commands._parser import Parser
from rewriter.core.errors import RewriterError
from rewriter.core.types import ArgsMode

ARTIFACT = "a wrapper, a .pt2 package, or a directory or log that holds several"
WRAPPERS = "wrappers of the cache"
LEVEL_VARIABLE = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
KERNELS_VARIABLE = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
WHICH: tuple[ArgsMode, ...] = get_args(ArgsMode)
_WHICH = "which wrappers"
_ARGS = (
    "which arguments print, hash and save read: written (what launches write, after them, and the "
    "inputs of each call; default), all (all arguments, before and after launches) or ends (each "
    "value where it is written and where it is last read)"
)
_INPUTS = (
    "inputs: a list saved by torch.save, for a package also a dict of keyword arguments (default: "
    "the wrapper's own get_args())"
)


def add_probe_options(parser: Parser, *, runs: bool = False) -> None:
    """Add the PROBES options, the same for every command that takes them.

    In commands that run artifacts (`runs`), `--args` also takes inputs; `add_run_options` adds it.
    """
    from rewriter.instrumentation import probes

    group = parser.group("probes")
    known = (f"{name}: {probe.summary}" for name, probe in probes.registry().items())
    what = "\n".join(["one or more of:", *known])
    group.add_argument("--probe", metavar="NAME[,NAME…]", action="append", help=what)
    group.add_argument(
        "--level",
        choices=sorted(probes.LEVELS),
        help="the probes that a level of torch's own debug printer stands for: 1 save, 2 print, "
        f"3 names (default: ${LEVEL_VARIABLE})",
    )
    group.add_argument(
        "--kernels",
        metavar="GLOB[,GLOB…]",
        help=f"only launches of these kernels (default: ${KERNELS_VARIABLE})",
    )
    group.add_argument("--launches", metavar="N[,N-M…]", help="only launches of these indices")
    group.add_argument(
        "--when",
        choices=("before", "after", "both"),
        help="when to act: before or after launches, or both (default: after; names before; sync "
        "and time both)",
    )
    if not runs:
        group.add_argument(
            "--dormant",
            action="store_true",
            help="the probes (default: all) do nothing until `rewriter control` switches them on",
        )
        group.add_argument("--args", dest="which", choices=WHICH, help=_ARGS)
    group.add_argument(
        "--roles",
        metavar="ROLE[,ROLE…]",
        help="only values of these roles: in (what launches read), out (what they write), inout "
        "(what they change)",
    )
    group.add_argument(
        "--tensors",
        metavar="GLOB[,GLOB…]",
        help="only arguments and inputs of these names, or in these buffers",
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--calls",
        metavar="N[,N-M…]",
        help="only these calls of a wrapper, counted from 0; 100- is call 100 and all later ones",
    )
    which.add_argument("--first", metavar="N", type=int, help="only the first N calls of a wrapper")
    group.add_argument(
        "--every", metavar="N", type=int, help="of those calls, only every Nth, from the first on"
    )
    group.add_argument(
        "--keep",
        "--last",
        dest="last",
        metavar="N",
        type=int,
        help="keep only the last N calls of a wrapper in the dump",
    )
    group.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="how much each process may write to the dump, such as 500M or 10G; after that it "
        "writes no more, or with --keep replaces the oldest calls",
    )
    group.add_argument(
        "--allow",
        metavar="KERNEL:BUFFER",
        action="append",
        default=[],
        help="values that may be NaN or infinite: patterns of kernel and buffer, such as "
        "'*softmax*:buf3' or inputs:arg0_1 (may be repeated; adds the probe nan)",
    )
    group.add_argument(
        "--stop",
        action="store_true",
        help="end the program at the first NaN, with exit code 1 (adds the probe nan)",
    )
    group.add_argument(
        "--on",
        metavar="TRIGGER[,…]",
        action="append",
        default=[],
        help="when to write the last launches to a dump: nan, inf, changed, spike:10x or slow:5x "
        "(adds the probe record)",
    )
    group.add_argument(
        "--format",
        choices=("text", "upstream"),
        default="text",
        help="how values are printed: one line each, or as torch's own debug printer does",
    )
    group.add_argument(
        "--values",
        action="store_true",
        help="also print the first elements of each tensor, at most 64",
    )


class _InputsOrWhich(argparse.Action):
    """`--args` of a command that runs artifacts: a file of inputs, or which arguments are read."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, "which" if values in WHICH else "args", values)


def add_model_option(parser: Parser) -> None:
    """Add the choice among the models of a package."""
    parser.group(_WHICH).add_argument(
        "--model",
        dest="models",
        metavar="NAME",
        action="append",
        help="in a package, only this model (may be repeated; default: all)",
    )


def add_wrapper_option(parser: Parser, *, programs: bool = False) -> None:
    """Add the choice among the wrappers of a directory or a log, and with `programs` of
    programs."""
    of_a_program = "; for a program only a name, such as 'c24mei*'" if programs else ""
    parser.group(_WHICH).add_argument(
        "--wrapper",
        dest="wrappers",
        metavar="GLOB",
        action="append",
        default=[],
        help="in a directory or log, only wrappers of this name, or of this kind of graph: "
        f"forward, backward, inference{of_a_program} (may be repeated; default: all)",
    )


def add_package_options(parser: Parser) -> None:
    """Add the options for packages: how they are rebuilt and checked."""
    from rewriter.rebuild.types import ROUTES

    group = parser.group("packages (.pt2)")
    group.add_argument(
        "--route",
        choices=ROUTES,
        help="how it is built again: link compiles the wrapper and keeps kernels and weights; full "
        "compiles all; sources leaves compiling to the loader (default: the first that works)",
    )
    group.add_argument(
        "--no-rebuild",
        action="store_true",
        help="compile nothing: write a directory with the sources and a build script",
    )
    group.add_argument("--no-check", action="store_true", help="do not load the result")
    group.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="for the check, import this module first: it registers custom operators",
    )


def add_blocking_option(parser: Parser) -> None:
    """Add the option that makes faults on a GPU show where they happen."""
    parser.group("the run").add_argument(
        "--blocking",
        action="store_true",
        help="on a GPU, wait for each launch, and do not cache memory: sets "
        "CUDA_LAUNCH_BLOCKING=1 and PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    )


def time_limit(text: str) -> float:
    """Parse a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return seconds


def add_output_options(parser: Parser, default: str) -> None:
    """Add the options of a command that writes a changed artifact."""
    group = parser.group("output")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "-o", "--output", metavar="OUT", help=f"file to write, - for standard output ({default})"
    )
    where.add_argument(
        "--in-place",
        action="store_true",
        help="replace the file, and keep the original beside it as *.orig",
    )
    group.add_argument("--diff", action="store_true", help="print what changes instead of writing")
    group.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if something would change"
    )
    group.add_argument("--overwrite", action="store_true", help="replace an existing output")
    group.add_argument("--json", action="store_true", help="print one JSON object")


def add_run_options(parser: Parser, *, programs: bool = False, probes: bool = False) -> None:
    """Add the options of how an artifact is run, and of its dump; with `probes`, `--args` also says
    which arguments of launches are read."""
    add_model_option(parser)
    add_wrapper_option(parser, programs=programs)
    group = parser.group("the run")
    if probes:
        parser.set_defaults(which=None)
        group.add_argument(
            "--args",
            metavar="FILE.pt|written|all|ends",
            action=_InputsOrWhich,
            help=f"{_INPUTS}; or {_ARGS}; may be given twice, once for each",
        )
    else:
        group.add_argument("--args", metavar="FILE.pt", help=_INPUTS)
    group.add_argument(
        "--constants",
        metavar="FILE.pt",
        help="a dict of the globals that Inductor's loader sets, such as _frozen_param0",
    )
    group.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="import this module or file first: it registers custom operators",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=int,
        default=0,
        help="random seed of get_args() and of the run itself",
    )
    add_stop_options(parser)
    output = parser.group("output")
    output.add_argument("--overwrite", action="store_true", help="replace an existing dump")
    output.add_argument("--json", action="store_true", help="print one JSON object")


def examples(prog: str) -> tuple[tuple[str, str], ...]:
    """Examples for commands that run programs."""
    return (
        ("where does the first NaN come from?", f"{prog} -- python train.py"),
        ("look at one kernel", f"{prog} --kernels '*softmax*' --probe print -- python train.py"),
        ("which launches take longest?", f"{prog} --probe time -- python train.py"),
        (
            "all values, of several processes",
            f"{prog} --probe save -- torchrun --nproc-per-node 2 train.py",
        ),
    )


def add_old_spelling(parser: Parser) -> None:
    """Add `--wrappers` for `--wrapper`, which takes several names in one word."""
    group = parser.group(WRAPPERS)
    group.add_argument("--wrappers", dest="wrappers", action="append", help=argparse.SUPPRESS)


def add_strict_option(parser: Parser) -> None:
    parser.group("output").add_argument(
        "--strict",
        action="store_true",
        help="exit 1 also if a launch could not be checked, or an output of diagnose not compared",
    )


def add_stop_options(parser: Parser) -> None:
    """Add the time limit and the directory of the dump."""
    parser.group("the run").add_argument(
        "--timeout",
        metavar="SECONDS",
        type=time_limit,
        help="stop the program after this time, which includes imports and compilation, and name "
        "the launch that was running",
    )
    parser.group("output").add_argument(
        "-d",
        "--dump",
        metavar="DUMP",
        help="directory to dump to (default: a new <stem>.dump, or <stem>.sanitize or .diagnosis; "
        "for a program cache.dump)",
    )


def add_quiet_option(parser: Parser) -> None:
    parser.group("output").add_argument(
        "--quiet",
        action="store_true",
        help="print nothing, only write the dump (for a program this is the default, unless "
        "--probe is given)",
    )


def refuse_idle(given: Mapping[str, object], why: str, hint: str = "") -> None:
    """Raise `RewriterError` if options have values that would change nothing.

    `given` are those values by option, `why` the rest of a sentence: `a, b given, but …`.
    """
    if idle := [name for name, value in given.items() if value]:
        hint = hint or f"Drop {'it' if len(idle) == 1 else 'them'}."
        raise RewriterError("idle-options", f"{', '.join(idle)} given, but {why}", hint=hint)
