"""A program of the user's with probes: `rewriter run -- COMMAND`, which is `rewriter cache run`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from rewriter.cache import location
from rewriter.cache.select import Choice, seconds
from rewriter.commands._common import (
    emit_json,
    names_probes,
    refuse_idle,
    selection,
    time_limit,
)
from rewriter.commands._parser import Parser
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation import api
from rewriter.instrumentation.types import Selection

WRAPPERS = "wrappers of the cache"


def examples(prog: str) -> tuple[tuple[str, str], ...]:
    """What a command that runs programs is for."""
    return (
        ("where does the first NaN come from?", f"{prog} -- python train.py"),
        ("look at one kernel", f"{prog} --kernels '*softmax*' --probe print -- python train.py"),
        ("which launches take longest?", f"{prog} --probe time -- python train.py"),
        (
            "all values, of several processes",
            f"{prog} --probe save -- torchrun --nproc-per-node 2 train.py",
        ),
    )


def add_choice_options(parser: Parser) -> None:
    """Add what chooses wrappers of a cache by their age."""
    group = parser.group(WRAPPERS)
    group.add_argument("--since", metavar="SPAN", help="only those made in the last 10m, 2h, 3d")
    group.add_argument("--newest", metavar="N", type=int, help="only the newest of them")


def add_directory_option(parser: Parser) -> None:
    parser.group(WRAPPERS).add_argument(
        "--dir",
        metavar="DIR",
        help=f"the cache (default: where torch puts it: ${location.VARIABLE}, or "
        "torchinductor_USER in the directory for temporary files)",
    )


def add_program_options(parser: Parser) -> None:
    """Add what only concerns programs: which wrappers of which cache have probes."""
    parser.group(WRAPPERS).add_argument(
        "--wrappers",
        dest="cached",
        metavar="GLOB[,GLOB…]",
        help="only wrappers of these names, such as 'c24mei*'",
    )
    add_choice_options(parser)
    add_directory_option(parser)


def add_stop_options(parser: Parser) -> None:
    """Add where the record goes, and when a run is stopped."""
    parser.group("the run").add_argument(
        "--timeout",
        metavar="SECONDS",
        type=time_limit,
        help="stop it after this time, imports and compilation included, and say in which launch",
    )
    parser.group("output").add_argument(
        "-d",
        "--dump",
        metavar="DUMP",
        help="directory to dump to (default: a new <stem>.dump, for a program cache.dump)",
    )


def add_quiet_option(parser: Parser) -> None:
    parser.group("output").add_argument(
        "--quiet",
        action="store_true",
        help="probes print nothing; the dump has it all (of a program: default unless a probe is "
        "named)",
    )


def behind_dashes(arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """The words behind `--`: a program as it would be typed; `None` if there is no `--`."""
    words = shlex.split(arguments.command_line)
    return tuple(words[words.index("--") + 1 :]) if "--" in words else None


def no_program(words: Sequence[str]) -> RewriterError:
    """Words of which none stands behind `--`."""
    if not words:
        return RewriterError(
            "no-program",
            "no program was named",
            hint="Put it behind --, as you would type it: -- python train.py.",
        )
    start = shlex.join(["python", *words] if words[0].endswith(".py") else words)
    return RewriterError(
        "no-program",
        f"{words[0]!r} does not stand behind --",
        hint="Put -- in front of the program: options after it are the program's own: "
        f"rewriter run -- {start}",
    )


def refuse_options_of_artifacts(arguments: argparse.Namespace) -> None:
    """Options that say how an artifact is run mean nothing for a program."""
    _refuse(
        arguments,
        {"args", "constants", "imports", "seed", "models", "wrappers"},
        "a program brings its own",
        "Drop the option; --wrappers chooses among the wrappers of a program.",
    )


def refuse_options_of_programs(arguments: argparse.Namespace) -> None:
    """Options that choose wrappers in a cache mean nothing for an artifact."""
    _refuse(
        arguments,
        {"cached", "since", "newest", "dir"},
        "there is no program",
        "Drop the option, or put the program behind --; --wrapper chooses one of a directory.",
    )


def _refuse(arguments: argparse.Namespace, names: set[str], why: str, hint: str) -> None:
    options = {"imports": "import", "models": "model", "wrappers": "wrapper", "cached": "wrappers"}
    given = {f"--{options.get(name, name)}": getattr(arguments, name) for name in names}
    refuse_idle(dict(sorted(given.items())), why, hint)


def act(
    arguments: argparse.Namespace,
    command: Sequence[str],
    *,
    standard_input: StandardInput | None = None,
) -> int:
    """Run a program with probes in the wrappers of its cache, and say what was found."""
    from rewriter.cache.run import Request, run
    from rewriter.commands import _cache_run as report

    asked = probes_for_cache(arguments)
    globs = tuple(x for x in (arguments.cached or "").split(",") if x)
    request = Request(
        program=tuple(command),
        directory=location.directory(arguments.dir),
        selection=asked,
        choice=choice(arguments, globs, asked.kernels),
        pinned=arguments.dir is not None,
        dump=arguments.dump,
        overwrite=arguments.overwrite,
        timeout=arguments.timeout,
        blocking=arguments.blocking,
        quiet=arguments.quiet or not names_probes(arguments),
        redirected=arguments.json,
        command=arguments.command_line,
        stdin=standard_input or StandardInput(),
    )
    ran = run(request, message)
    found = report.read(request, ran)
    if arguments.json:
        emit_json("cache-run", report.as_json(request, ran, found))
    report.show(request, ran, found)
    if ran.interrupted:
        return INTERRUPTED
    return DIFFERS if ran.ended.code != 0 or ran.summary.findings else OK


def probes_for_cache(arguments: argparse.Namespace) -> Selection:
    """The probes to put into a cache."""
    chosen = selection(arguments, default="print")
    if chosen is None:
        raise api.no_probes()
    return chosen


def choice(
    arguments: argparse.Namespace, globs: tuple[str, ...], kernels: tuple[str, ...] | None
) -> Choice:
    """Which wrappers of a cache."""
    since = None if arguments.since is None else seconds(arguments.since)
    newest = arguments.newest
    if newest is not None and newest < 1:
        raise RewriterError(
            "bad-number", f"--newest is {newest}", hint="Expected a number greater than 0."
        )
    return Choice(globs, kernels, since, newest)
