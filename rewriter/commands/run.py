"""`rewriter run`: run a wrapper in a process of its own and show what its launches did."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rewriter import api
from rewriter.artifact import Artifact
from rewriter.commands._common import (
    add_model_option,
    add_probe_options,
    emit_json,
    message,
    plain_table,
    selection,
    steps,
)
from rewriter.runner import Ran, run
from rewriter.types import Json, Launch, Selection

ORDER = 40
_NO_OPERATOR = ("_OpNamespace", "No such operator", "Could not find schema for")
_LONG = 20  # launches from which on a progress bar is worth its lines


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="run a wrapper or a package, plain or probed")
    parser.add_argument("artifact", metavar="ARTIFACT")
    parser.add_argument(
        "--args",
        metavar="FILE.pt",
        help="inputs: a list saved by torch.save, for a package also a dict of keyword arguments "
        "(default: the wrapper's own get_args())",
    )
    parser.add_argument(
        "--constants",
        metavar="FILE.pt",
        help="a dict of the globals that Inductor's loader sets, such as _frozen_param0",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="import this module or file first: it registers the custom operators",
    )
    parser.add_argument(
        "-d", "--dump", metavar="DUMP", help="directory to dump to (default: a new <stem>.dump)"
    )
    parser.add_argument("--seed", type=int, default=0, help="for get_args() and for the run itself")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing dump")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_model_option(parser)
    add_probe_options(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    artifact = api.open(arguments.artifact, models=arguments.models)
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
            command=command,
            quiet=arguments.json,
            progress=progress,
            report=steps(),
        )
    if arguments.json:
        _emit(ran, command)
    else:
        _show(ran, command)
    return ran.code


def _show(ran: Ran, command: str) -> None:
    if rows := list(_rows(ran)):
        head = ["#", "kernel", "runs", "writes", "type", "min", "max", "mean", "std", "nan", "inf"]
        print(plain_table([head, *rows]))
    for index, output in enumerate(ran.outputs):
        what = (
            f"{output['dtype']}{output['shape']} {output['device']} sha256 {output['sha256'][:16]}"
            if output["type"] == "tensor"
            else output["value"]
        )
        print(f"output {index}: {what}")
    if ran.random_globals:
        message(
            f"note: {', '.join(ran.random_globals)} held random values: Inductor's loader sets "
            "them to the model's frozen weights. Pass --constants FILE.pt for the real ones."
        )
    if ran.code:
        message(_crash(ran))
    if ran.dump is not None:
        message(f"dump: {ran.dump}")
    message(f"{'crashed' if ran.code else 'ran'} in {ran.seconds:.1f} s; to repeat: {command}")


def _crash(ran: Ran) -> str:
    how = f"signal {signal.Signals(ran.signal).name}" if ran.signal else ran.message
    text = f"{ran.path}: the wrapper crashed: {how}"
    if (last := ran.last_launch) is not None:
        state = "at" if ran.last_phase == "before" else "after"
        text += f"\n  {state} launch #{last.index} {last.kernel} (line {last.line})"
    elif ran.dump is None:
        text += "\n  `rewriter run --probe names` tells at which launch."
    if any(text in ran.message for text in _NO_OPERATOR):
        text += "\n  Pass --import with the module that registers the operator."
    return text


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


def _emit(ran: Ran, command: str) -> None:
    emit_json(
        "run",
        {
            "artifact": str(ran.path),
            "command": command,
            "dump": None if ran.dump is None else str(ran.dump),
            "exit": ran.code,
            "signal": ran.signal,
            "message": ran.message,
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
