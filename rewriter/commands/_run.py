"""Runs one wrapper or package for a command: its options, the run, and the command to repeat it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewriter.artifact.types import Artifact
from rewriter.commands import _run_text as text
from rewriter.commands._common import (
    add_model_option,
    add_wrapper_option,
    selection,
    steps,
    verdict_lines,
)
from rewriter.commands._parser import Parser
from rewriter.commands._program import add_stop_options
from rewriter.core.terminal import message, say
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.conclusion import OPTIONS, Conclusion, next_command, write_conclusion
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump import timing
from rewriter.dump.where import where
from rewriter.execution.replay import RecordedCall
from rewriter.execution.run_result import InterruptedRunError, RunResult
from rewriter.execution.runner import blocking_environment, run
from rewriter.instrumentation.types import Selection

_LONG = 20  # launches from which on a progress bar is worth its lines


def add_run_options(parser: Parser) -> None:
    """Add what says how an artifact is run, and where the record goes."""
    add_model_option(parser)
    add_wrapper_option(parser)
    group = parser.group("the run")
    group.add_argument(
        "--args",
        metavar="FILE.pt",
        help="inputs: a list saved by torch.save, for a package also a dict of keyword arguments "
        "(default: the wrapper's own get_args())",
    )
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
        help="import this module or file first: it registers the custom operators",
    )
    group.add_argument(
        "--seed", metavar="N", type=int, default=0, help="for get_args() and for the run itself"
    )
    add_stop_options(parser)
    output = parser.group("output")
    output.add_argument("--overwrite", action="store_true", help="replace an existing dump")
    output.add_argument("--json", action="store_true", help="print one JSON object")


def again(arguments: argparse.Namespace, options: str, *, blocking: bool) -> str:
    """The command that runs the same once more, with other options for the probes, if any."""
    if not options:
        return ""
    words = ["rewriter", "run", arguments.artifact]
    for option in ("args", "constants", "seed", "timeout"):
        if (value := getattr(arguments, option)) not in (None, 0):
            words += [f"--{option}", f"{value:g}" if option == "timeout" else str(value)]
    words += [word for name in arguments.imports for word in ("--import", name)]
    words += [word for name in arguments.models or () for word in ("--model", name)]
    words += [word for name in arguments.wrappers for word in ("--wrapper", name)]
    words += ["--blocking"] * blocking
    return f"{shlex.join(words)} {options}"


def act(
    arguments: argparse.Namespace, artifact: Artifact, recorded: RecordedCall | None = None
) -> int:
    """Run one wrapper, and say what its launches did."""
    chosen = selection(arguments, environment=artifact.only.probes is None)
    command = arguments.command_line
    if arguments.dump and not arguments.overwrite:
        command += " --overwrite"
    environment = blocking_environment() if arguments.blocking else {}
    environment |= {"REWRITER_QUIET": "1"} if arguments.quiet else {}
    try:
        with _progress(artifact, chosen) as progress:
            ran = run(
                artifact,
                chosen,
                args=arguments.args,
                recorded=recorded,
                constants=arguments.constants,
                imports=arguments.imports,
                dump=arguments.dump,
                seed=arguments.seed,
                overwrite=arguments.overwrite,
                timeout=arguments.timeout,
                environment=environment,
                command=command,
                quiet=arguments.json,
                progress=progress,
                report=steps(),
            )
    except InterruptedRunError as stopped:
        ran = stopped.result
    verdicts = judge(ran, blocking=arguments.blocking)
    trace = timing.write_trace(ran.dump) if ran.dump is not None and ran.is_timed else None
    template = again(arguments, OPTIONS, blocking=arguments.blocking)
    if ran.dump is not None:
        write_conclusion(ran.dump, Conclusion(ran.ended, arguments.blocking, template))
    following = [next_command(template, verdict, chosen) for verdict in verdicts]
    if arguments.json:
        text.emit(ran, command, verdicts, following, trace)
    else:
        text.show(ran)
        if recorded is not None:
            text.show_replay(ran, recorded)
        if ran.crashed:
            probed = chosen is not None or artifact.only.probes is not None
            hint = "" if probed else again(arguments, "--probe names,sync", blocking=False)
            message(*text.crash(ran, verdicts, hint))
        for verdict, command_line in zip(verdicts, following, strict=True):
            say(*verdict_lines(verdict, command_line))
        text.tell(ran, command, trace)
    return ran.code


def judge(ran: RunResult, *, blocking: bool) -> tuple[Verdict, ...]:
    """What the record of a run says: where it crashed, and where its first NaN is from."""
    if ran.dump is None:
        return ()
    crashed = examine(ran.dump, ran.ended, blocking=blocking) if ran.crashed else ()
    return crashed + nonfinite.examine(ran.dump, where=where)


@contextmanager
def _progress(
    artifact: Artifact, chosen: Selection | None
) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error if it is a terminal, unless probes print to the same terminal."""
    prints = chosen is not None and set(chosen.probes) & {"print", "names"}
    shown = chosen is not None and sys.stderr.isatty() and not (prints and sys.stdout.isatty())
    total = len(artifact.launches) if shown else 0
    if total < _LONG:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("launches"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("launches", total=total)
        yield lambda done: bar.update(task, completed=done)
