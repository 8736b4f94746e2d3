"""The text output of `rewriter run` on an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rewriter.commands._documents.run import RunDocument
from rewriter.commands._output import finite_style, from_here
from rewriter.core.terminal import message, say, table
from rewriter.core.types import Json
from rewriter.diagnosis.verdict import lacks_operator
from rewriter.dump import timing
from rewriter.execution.replay import RecordedCall
from rewriter.execution.run_result import Replayed, RunResult


def show(done: RunDocument) -> None:
    ran = done.result
    # The table of times lists the launches, too.
    if (rows := list(_rows(done))) and (not ran.is_timed or any(row[3] for row in rows)):
        head = ["#", "kernel", "runs", "writes", "type", "min", "max", "mean", "std", "nan", "inf"]
        say(*table([head, *rows], finite_style))
    if done.judged.times:
        say(*table(timing.lines(done.judged.times)))
    for index, output in enumerate(ran.outputs):
        what = (
            f"{output['dtype']}{output['shape']} {output['device']} sha256 {output['sha256'][:16]}"
            if output["type"] == "tensor"
            else output["value"]
        )
        what += f" nan {output['nan']}" if output.get("nan") else ""
        say(f"output {index}: {what}")
    for row in ran.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")


def show_replay(ran: RunResult, recorded: RecordedCall) -> None:
    """Says whether a replayed call returned what was recorded."""
    if ran.crashed:
        return
    say(replay_line(f"{recorded.run.path}", ran.replayed))
    if recorded.random:
        message(
            f"note: {', '.join(recorded.random)} drew random numbers, and the state of the "
            "generators is not in the dump: what comes of them is not the same"
        )


def replay_line(call: str, states: Sequence[Replayed]) -> str:
    """Says how many outputs are equal to the recorded ones, and the numbers of those that are
    not."""
    numbers: dict[Replayed, list[str]] = {"equal": [], "differs": [], "unknown": [], "value": []}
    for number, state in enumerate(states):
        numbers[state].append(str(number))
    same, different, unknown = numbers["equal"], numbers["differs"], numbers["unknown"]
    total = len(same) + len(different) + len(unknown)
    if not total:
        return f"replayed {call}"
    if len(same) == total:
        return f"replayed {call}: every output is what was recorded, bit for bit"
    line = f"replayed {call}: {len(same)} of {total} outputs are what was recorded, bit for bit"
    line += f"; different: {', '.join(different)}" if different else ""
    return line + (f"; not recorded: {', '.join(unknown)}" if unknown else "")


def tell(done: RunDocument) -> None:
    ran, trace = done.result, done.judged.trace
    if ran.inputs == "random" and ran.launches:
        message(
            "note: the inputs were random, those of the wrapper's own get_args(): what is found "
            "may be theirs. --args FILE.pt takes others; `rewriter run DUMP/rank0/run0` has those "
            "of a recorded call"
        )
    if ran.random_globals:
        message(
            f"note: {', '.join(ran.random_globals)} held random values: Inductor's loader sets "
            "them to the model's frozen weights. Pass --constants FILE.pt for the real ones."
        )
    if ran.dump is not None:
        message(f"dump: {from_here(ran.dump)}")
    if trace is not None:
        message(f"trace for Perfetto or chrome://tracing: {from_here(trace)}")
    ended = "stopped" if ran.ended.stopped or ran.by_probe else "crashed" if ran.crashed else "ran"
    message(f"{ended} in {ran.seconds:.1f} s; to repeat: {done.command}")


def crash(done: RunDocument, probed: str) -> list[str]:
    """The text about a crash, besides the verdicts; `probed` is a command that would get one."""
    ran, ended = done.result, done.result.ended
    how = "was stopped" if ended.interrupted else "did not end" if ended.timed_out else "crashed"
    lines = [f"{ran.path}: the wrapper {how}: {ended}"]
    if not done.judged.verdicts:
        hint = f"To learn at which launch: {probed}" if probed else "No probed launch had begun."
        lines.append(f"  {hint}")
    if lacks_operator(ended.message):
        lines.append("  Pass --import with the module that registers the operator.")
    return lines


def _rows(done: RunDocument) -> Iterator[list[str]]:
    from rewriter.runtime.text import number, short_dtype

    for launch, runs, outputs in done.launches:
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
