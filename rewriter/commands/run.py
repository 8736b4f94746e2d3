"""`rewriter run`: run a wrapper in a process of its own and show what its launches did."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rewriter import api, nonfinite, timing
from rewriter.artifact import Artifact
from rewriter.commands._common import (
    ARTIFACT,
    add_blocking_option,
    add_model_option,
    add_probe_options,
    add_wrapper_option,
    emit_json,
    finite_style,
    selection,
    steps,
    time_limit,
    verdict_lines,
)
from rewriter.commands._parser import Parser
from rewriter.conclusion import OPTIONS, Conclusion, next_command, write_conclusion
from rewriter.runner import Ran, blocking_environment, run
from rewriter.terminal import message, say, table
from rewriter.triage import examine
from rewriter.types import Json, Launch, Selection
from rewriter.verdict import Verdict
from rewriter.where import where

_NO_OPERATOR = ("_OpNamespace", "No such operator", "Could not find schema for")
_LONG = 20  # launches from which on a progress bar is worth its lines


def add(parser: Parser) -> None:
    parser.add_argument("artifact", metavar="ARTIFACT", help=ARTIFACT)
    add_probe_options(parser)
    add_run_options(parser)
    add_blocking_option(parser)
    parser.add_examples(
        ("what each launch writes, on random inputs", "rewriter run output_code.py --probe print"),
        (
            "a package on inputs of its own, saved by torch.save",
            "rewriter run model.pt2 --args inputs.pt --probe inputs,print",
        ),
        (
            "one graph of several",
            "rewriter run torch_compile_debug --wrapper backward --probe save -d backward.dump",
        ),
        (
            "the launch that crashes",
            "rewriter run output_code.py --probe names,sync --blocking --timeout 60",
        ),
    )
    parser.set_defaults(act=act)


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
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=time_limit,
        help="stop it after this time, imports and compilation included, and say in which launch",
    )
    output = parser.group("output")
    output.add_argument(
        "-d", "--dump", metavar="DUMP", help="directory to dump to (default: a new <stem>.dump)"
    )
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


def act(arguments: argparse.Namespace) -> int:
    artifact = api.open(arguments.artifact, models=arguments.models).choose(arguments.wrappers)
    chosen = selection(arguments, environment=artifact.only.probes is None)
    command = arguments.command_line
    if arguments.dump and not arguments.overwrite:
        command += " --overwrite"
    with _progress(artifact, chosen) as progress:
        ran = run(
            artifact,
            chosen,
            args=arguments.args,
            constants=arguments.constants,
            imports=arguments.imports,
            dump=arguments.dump,
            seed=arguments.seed,
            overwrite=arguments.overwrite,
            timeout=arguments.timeout,
            environment=blocking_environment() if arguments.blocking else {},
            command=command,
            quiet=arguments.json,
            progress=progress,
            report=steps(),
        )
    verdicts = judge(ran, blocking=arguments.blocking)
    trace = timing.write_trace(ran.dump) if ran.dump is not None and ran.is_timed else None
    template = again(arguments, OPTIONS, blocking=arguments.blocking)
    if ran.dump is not None:
        write_conclusion(ran.dump, Conclusion(ran.ended, arguments.blocking, template))
    following = [next_command(template, verdict) for verdict in verdicts]
    if arguments.json:
        _emit(ran, command, verdicts, following, trace)
    else:
        _show(ran)
        if ran.crashed:
            probed = chosen is not None or artifact.only.probes is not None
            hint = "" if probed else again(arguments, "--probe names,sync", blocking=False)
            message(*_crash(ran, verdicts, hint))
        for verdict, command_line in zip(verdicts, following, strict=True):
            say(*verdict_lines(verdict, command_line))
        _tell(ran, command, trace)
    return ran.code


def judge(ran: Ran, *, blocking: bool) -> tuple[Verdict, ...]:
    """What the record of a run says: where it crashed, and where its first NaN is from."""
    if ran.dump is None:
        return ()
    crashed = examine(ran.dump, ran.ended, blocking=blocking) if ran.crashed else ()
    return crashed + nonfinite.examine(ran.dump, where=where)


def _show(ran: Ran) -> None:
    # A table of times has the launches, too.
    if (rows := list(_rows(ran))) and (not ran.is_timed or any(row[3] for row in rows)):
        head = ["#", "kernel", "runs", "writes", "type", "min", "max", "mean", "std", "nan", "inf"]
        say(*table([head, *rows], finite_style))
    if ran.dump is not None and ran.is_timed:
        say(*table(timing.lines(timing.table(ran.dump))))
    for index, output in enumerate(ran.outputs):
        what = (
            f"{output['dtype']}{output['shape']} {output['device']} sha256 {output['sha256'][:16]}"
            if output["type"] == "tensor"
            else output["value"]
        )
        say(f"output {index}: {what}")
    for row in ran.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")


def _tell(ran: Ran, command: str, trace: Path | None) -> None:
    if ran.random_globals:
        message(
            f"note: {', '.join(ran.random_globals)} held random values: Inductor's loader sets "
            "them to the model's frozen weights. Pass --constants FILE.pt for the real ones."
        )
    if ran.dump is not None:
        message(f"dump: {ran.dump}")
    if trace is not None:
        message(f"trace for Perfetto or chrome://tracing: {trace}")
    ended = "stopped" if ran.timed_out else "crashed" if ran.crashed else "ran"
    message(f"{ended} in {ran.seconds:.1f} s; to repeat: {command}")


def _crash(ran: Ran, verdicts: Sequence[Verdict], probed: str) -> list[str]:
    """What is said of a crash beside the verdicts; `probed` is a command that would give one."""
    lines = [
        f"{ran.path}: the wrapper {'did not end' if ran.timed_out else 'crashed'}: {ran.ended}"
    ]
    if not verdicts:
        hint = f"To learn at which launch: {probed}" if probed else "No probed launch had begun."
        lines.append(f"  {hint}")
    if any(text in ran.message for text in _NO_OPERATOR):
        lines.append("  Pass --import with the module that registers the operator.")
    return lines


def _rows(ran: Ran) -> Iterator[list[str]]:
    from rewriter.runtime.text import number, short_dtype

    for launch, runs, outputs in _by_launch(ran):
        first = [str(launch.index), launch.kernel, str(runs)]
        for row in outputs or [{}]:
            cells = [""] * 8
            if "arg" in row:
                kind = short_dtype(row["dtype"]) + str(row["shape"])
                cells = [row["arg"], kind, *_statistics(row, number)]
            yield [*first, *cells]
            first = ["", "", ""]


def _statistics(row: Json, number: Callable[[Any], str]) -> list[str]:
    if "numel" not in row:
        return [""] * 6
    floats = [row[key] for key in ("min", "max", "mean", "std")]
    return [
        *(value if isinstance(value, str) else number(value) for value in floats),
        str(row["nan"]),
        str(row["inf"]),
    ]


def _by_launch(ran: Ran) -> Iterator[tuple[Launch, int, list[Json]]]:
    """Each launch that ran, how often, and what its last run wrote."""
    seen: dict[int, dict[int, list[Json]]] = {}
    for row in ran.events:
        if "launch" not in row:
            continue  # the inputs of the call
        seen.setdefault(row["launch"], {}).setdefault(row.get("iteration", 0), []).append(row)
    for launch in ran.launches:
        if runs := seen.get(launch.index):
            last = runs[max(runs)]
            written = [
                row
                for row in last
                if row["phase"] == "after" and row.get("role") != "in" and "dtype" in row
            ]
            yield launch, len(runs), written


def _emit(
    ran: Ran,
    command: str,
    verdicts: Sequence[Verdict],
    following: Sequence[str],
    trace: Path | None,
) -> None:
    emit_json(
        "run",
        {
            "artifact": str(ran.path),
            "command": command,
            "dump": None if ran.dump is None else str(ran.dump),
            "exit": ran.code,
            "signal": ran.signal,
            "message": ran.message,
            "timed_out": ran.timed_out,
            "verdict": verdicts[0].json() if verdicts else None,
            "verdicts": [verdict.json() for verdict in verdicts],
            "next": following[0] if following else "",
            "unexpected": list(ran.unexpected),
            "times": [timed.json() for timed in timing.table(ran.dump)]
            if trace and ran.dump
            else [],
            "trace": None if trace is None else str(trace),
            "seconds": round(ran.seconds, 3),
            "outputs": list(ran.outputs),
            "random_globals": list(ran.random_globals),
            "launches": [
                {
                    "index": launch.index,
                    "kernel": launch.kernel,
                    "kind": launch.kind,
                    "line": launch.line,
                    "runs": runs,
                    "writes": written,
                }
                for launch, runs, written in _by_launch(ran)
            ],
        },
    )


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
