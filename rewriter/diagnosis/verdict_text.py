"""The text of a verdict for the terminal, and parts of it for the HTML report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import chain

from rewriter.core.dtypes import short_dtype
from rewriter.core.labels import short
from rewriter.core.terminal import escape
from rewriter.core.text import figure, some
from rewriter.diagnosis.history import ordinal
from rewriter.diagnosis.verdict import CrashVerdict, Verdict
from rewriter.diagnosis.verdict_values import Earlier, VerdictArgument
from rewriter.dump.launched import variable
from rewriter.dump.names import SourceLine
from rewriter.dump.rows import ScalarRow, TensorRow, ValueRow
from rewriter.instrumentation.probes import args_mode
from rewriter.instrumentation.types import Selection

# Placeholders in the template of a command: probe options, and the beginning of a wrapper's name.
OPTIONS, WRAPPER = "{options}", "{wrapper}"
_SHOWN = ("min", "max", "mean", "nan", "inf")
_LINES = 4  # of the model
_PASSED = 3  # later launches that are listed
_CALLS = 5  # earlier calls that are listed


def describe(verdict: Verdict, *, next_command: str) -> str:
    """The text of a verdict. `next_command` is a suggestion for the user, empty for none."""
    own = [line for line in verdict.lines if not line.is_of_library]
    is_over = verdict.state == "over"
    # After the launch, it was no longer at the line of the model that the launch computes.
    is_there = verdict.state not in ("after", "over", "earlier")
    is_said = bool(own) and f" {own[0].file_name}:" in verdict.headline
    at = f" ({own[0].short})" if own and is_there and not is_said else ""
    lines = [f"verdict: {verdict.headline}{at}", f"  {', '.join(where(verdict))}"]
    if isinstance(verdict, CrashVerdict) and is_over and not verdict.ended.signal:
        # It was in no launch, of which this would be; nor in the call, if that is known.
        return "\n".join(map(escape, lines[: 1 if verdict.ended.scope == "outside" else 2]))
    if verdict.names.part:
        lines.append(f"  {verdict.names.part}")
    if verdict.source_nodes or verdict.origins:
        nodes, origins = ", ".join(verdict.source_nodes), ", ".join(verdict.origins)
        operators = f" ({origins})" if origins else ""
        lines.append(f"  from {nodes or 'no source node'}{operators}")
    lines += [f"  at {line}" for line in model_lines(verdict.lines)]
    shown = (argument_lines(verdict.arguments), places(verdict), followed(verdict))
    lines += [f"  {line}" for line in chain(*shown, passed_on(verdict))]
    lines += [f"  note: {note}" for note in verdict.notes]
    if next_command:
        lines.append(f"  next: {next_command}")
        lines.append(f"        ({verdict.wants[1] or 'their values as files'})")
    return "\n".join(map(escape, lines))


def argument_lines(arguments: Sequence[VerdictArgument]) -> list[str]:
    """The inputs and results of a launch: statistics, and what wrote them before."""
    lines = []
    shown = [argument for argument in arguments if argument.row or argument.producer]
    for argument in shown:
        name = f"{argument.name} ({argument.model})" if argument.model else argument.name
        then = "afterwards " if is_after(argument) else ""
        lines.append(f"{argument.role:<5} {name}  {value(argument.row, then)}".rstrip())
        if came_from := origin(argument):
            lines.append(f"      {came_from}")
        if before := history(argument.earlier, argument.row):
            lines.append(f"      {before}")
        if argument.after:
            lines.append(f"      afterwards {statistics(argument.after)}")
    for role in ("in", "inout", "out"):
        rest = [x.name for x in arguments if x not in shown and x.role == role]
        if rest:
            lines.append(f"{role:<5} {', '.join(rest)}  not recorded")
    return lines


def model_lines(lines: Sequence[SourceLine]) -> list[str]:
    """The lines of the model: those of libraries are cut off."""
    most = max(_LINES, sum(not line.is_of_library for line in lines))
    shown = [str(line) for line in lines[:most]]
    if len(lines) > most:
        shown[-1] += f" (and {len(lines) - most} more lines, of libraries)"
    return shown


def where(verdict: Verdict) -> list[str]:
    """The piece of the model, the wrapper, the process, the call, and the kind of the launch."""
    call = f"{verdict.call} ({verdict.run})" if verdict.call else verdict.run
    rank = f"rank {verdict.rank}"
    parts = (verdict.piece, verdict.artifact, verdict.process, rank, call, verdict.kind)
    return [x for x in parts if x]


def places(verdict: Verdict) -> list[str]:
    """Where in its tensors the values that are not finite are."""
    words = {"nan": "NaN", "inf": "infinities"}
    return [
        f"{words[held.what]} in {verdict.names.called(held.name)}: {held.where}"
        for held in verdict.held
        if held.where
    ]


def followed(verdict: Verdict) -> list[str]:
    """One element, traced backwards from the launch."""
    lines: list[str] = []
    for position, step in enumerate(verdict.followed):
        lines.append(f"{'of which ' if position else 'one element: '}{step}, of")
        reads = [read.of(verdict.names.called(read.name)) for read in step.reads]
        lines += [f"      {read}" for read in reads or ["what is not known"]]
    return lines


def passed_on(verdict: Verdict) -> list[str]:
    """The first later launches that wrote NaN, too."""
    places = [launch.place for launch in verdict.passed_on]
    return [f"passed on by {some(places, _PASSED)}"] if places else []


def origin(argument: VerdictArgument) -> str:
    """What wrote an argument, and its value then if that differs; empty if not known."""
    producer, text = argument.producer, str(argument.producer)
    if argument.saved is not None:
        producer = argument.saved.producer
        text = f"an input of the call: {argument.saved}"
        if producer is None or producer.row is None:
            return text
    if producer is None:
        return ""
    made = "" if argument.saved or producer.row is None else variable(producer.row.arg)
    if made not in ("", variable(argument.name)):  # memory that was taken over
        text += f" as {made}"
    then, now = statistics(producer.row), statistics(argument.row)
    return text + (f"; then {then}" if then != now else "")


def history(earlier: Sequence[Earlier], now: ValueRow | None) -> str:
    """The magnitude of an argument in earlier calls; empty if there were none."""
    known = [(call.call, size) for call in earlier if (size := call.row.magnitude) is not None]
    if not known or not isinstance(now, TensorRow) or not now.is_floating:
        return ""
    shown = known[-_CALLS:]
    # As ordinals: numbers would be taken for those of `--calls`, which count from 0.
    first, last = ordinal(shown[0][0]), ordinal(shown[-1][0])
    calls = f"the {first} call" if len(shown) == 1 else f"the {first} to {last} call"
    return f"max |x| in {calls}: {', '.join(figure(size) for _, size in shown)}"


def is_after(argument: VerdictArgument) -> bool:
    """Whether an updated tensor was recorded only after the launch."""
    row = argument.tensor
    return argument.role == "inout" and row is not None and row.phase == "after"


def value(row: ValueRow | None, then: str = "") -> str:
    """Type, shape, device and statistics, as far as known; `then` goes before the statistics."""
    if isinstance(row, ScalarRow):
        return f"{row.type} {row.value or ''}"
    if not isinstance(row, TensorRow):
        return "not recorded"
    stride = f" stride {list(row.stride)}" if row.stride else ""
    kind = f"{short_dtype(row.dtype)}{list(row.shape)}{stride}"
    return f"{kind}  {row.device}  {then}{statistics(row)}"


def statistics(row: ValueRow | None) -> str:
    if not isinstance(row, TensorRow) or not row.is_measured:
        return "not measured"
    values = [(name, row.statistics[name]) for name in _SHOWN if row.statistics[name] is not None]
    text = " ".join(f"{name} {figure(x)}" for name, x in values)
    return text if len(values) == len(_SHOWN) or not row.size else f"nothing finite, {text}"


def next_command(template: str, verdict: Verdict, ran: Selection | None = None) -> str:
    """The command that finds out more than a verdict says; empty if there is none.

    `ran` are the probes that made the dump: no command asks for what they have recorded already.
    """
    options = verdict.wants[0]
    if not options or not template or (ran is not None and _is_recorded(options, ran)):
        return ""
    # Braces make a shell's quoting put the options into quotes.
    text = template.replace(f"'{OPTIONS}'", OPTIONS).replace(OPTIONS, options)
    return text.replace(WRAPPER, short(verdict.artifact))


def _is_recorded(options: str, ran: Selection) -> bool:
    """Whether a run with these options would record nothing new."""
    words = shlex.split(options)
    wanted = dict(zip(words[::2], words[1::2], strict=True))
    if not set(wanted["--probe"].split(",")) <= set(ran.probes):
        return False
    if wanted.get("--args") == "all" and args_mode(ran) != "all":
        return False
    if ran.kernels or ran.when or ran.roles or ran.tensors or ran.calls or ran.last:
        return False
    if ran.launches is None:
        return True
    launches = wanted.get("--launches")
    if launches is None:
        return False
    return all(any(int(text) in span for span in ran.launches) for text in launches.split(","))
