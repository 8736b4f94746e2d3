"""`rewriter run` on a wrapper or a package: the request, the run, and the command to repeat it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.recognise import program_hint
from rewriter.artifact.types import Artifact
from rewriter.commands._documents.run import RunDocument
from rewriter.commands._options import RunOptions, refuse_options
from rewriter.commands._output import (
    counting,
    emit,
    finite_style,
    from_here,
    steps,
    verdict_lines,
)
from rewriter.commands._selection import ProbedRunOptions, check_variables, selection
from rewriter.core.dtypes import short_dtype
from rewriter.core.errors import RewriterError
from rewriter.core.terminal import message, say, table
from rewriter.core.text import figure
from rewriter.diagnosis.judged import judge, with_code
from rewriter.diagnosis.verdict import lacks_operator
from rewriter.diagnosis.verdict_text import OPTIONS
from rewriter.dump import timing
from rewriter.dump.reading import is_dump
from rewriter.execution import replay
from rewriter.execution.conclusion import Conclusion
from rewriter.execution.replay import RecordedCall
from rewriter.execution.run_result import Replayed, RunResult
from rewriter.execution.runner import SILENT, RunRequest, blocking_environment, run_wrapper
from rewriter.instrumentation.editable import already_instrumented
from rewriter.instrumentation.types import Selection

_LONG = 20  # launches; with fewer they are not counted
_STATISTICS = ("min", "max", "mean", "std", "nan", "inf")


def open_named(arguments: RunOptions, path: str, *, kernels: bool = False) -> Artifact:
    """The wrapper that the command line names; `kernels` as in `open_artifact`. If that is a
    program, the error says how to run it."""
    try:
        artifact = open_artifact(path, models=arguments.models, kernels=kernels)
    except RewriterError as error:
        if error.slug != "not-a-wrapper" or not path.endswith(".py"):
            raise
        hint = program_hint(Path(path), arguments.words[0])
        raise RewriterError(error.slug, error.message, hint=hint) from error
    return artifact.choose(arguments.wrappers)


def open_plain(arguments: RunOptions, path: str) -> Artifact:
    """The only wrapper that the command line names. Raises `RewriterError` if it has probes."""
    return require_plain(open_named(arguments, path))


def require_plain(artifact: Artifact) -> Artifact:
    """The artifact, with its only wrapper. Raises `RewriterError` if that has probes."""
    if artifact.only.probes is not None:
        hint = "Name the plain file, or `rewriter strip` it first."
        raise already_instrumented(artifact.only, hint)
    return artifact


def request_of(arguments: RunOptions, artifact: Artifact) -> RunRequest:
    """The request of a run without probes, as the options say. Output goes to standard error."""
    return RunRequest(
        artifact,
        constants=_path(arguments.constants),
        args=_path(arguments.args),
        imports=tuple(arguments.imports),
        dump=_path(arguments.dump),
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        timeout=arguments.timeout,
        command=arguments.command_line,
        output="quiet",
    )


def again(arguments: RunOptions, path: str, options: str, *, blocking: bool) -> str:
    """The command to repeat a run with other probe options."""
    words = ["rewriter", "run", path]
    for option in ("args", "constants", "seed", "timeout"):
        if (value := getattr(arguments, option)) not in (None, 0):
            words += [f"--{option}", f"{value:g}" if option == "timeout" else str(value)]
    words += [word for name in arguments.imports for word in ("--import", name)]
    words += [word for name in arguments.models for word in ("--model", name)]
    words += [word for name in arguments.wrappers for word in ("--wrapper", name)]
    words += ["--interpret"] * getattr(arguments, "interpret", False)
    words += ["--blocking"] * blocking
    return f"{shlex.join(words)} {options}"


def act(arguments: ProbedRunOptions, path: str) -> int:
    """Run one wrapper, or a call that a dump recorded, and report the results."""
    if not is_dump(path):
        replay.require_call(path)
        return _act(arguments, path, open_named(arguments, path), None)
    why = "a recorded call has its own"
    refuse_options(arguments, "args models wrappers", why, "Drop the option.")
    recorded = replay.open_call(path)
    return _act(arguments, path, recorded.artifact, recorded)


def _act(
    arguments: ProbedRunOptions, path: str, artifact: Artifact, recorded: RecordedCall | None
) -> int:
    is_plain = artifact.only.probes is None
    chosen = selection(arguments, environment=is_plain)
    check_variables(chosen)
    blocking = blocking_environment() if arguments.blocking else {}
    # The command to repeat it has to overwrite the dump.
    overwrite = " --overwrite" if arguments.dump and not arguments.overwrite else ""
    request = replace(
        request_of(arguments, artifact),
        selection=chosen,
        recorded=recorded,
        interpret=arguments.interpret,
        environment={**blocking, **(SILENT if arguments.quiet else {})},
        command=f"{arguments.command_line}{overwrite}",
        output="quiet" if arguments.json else "shown",
        report=steps(),
    )
    with _progress(artifact, chosen) as progress:
        ran = run_wrapper(replace(request, progress=progress))
    # Of what had probes already, no command with other probes is suggested.
    template = again(arguments, path, OPTIONS, blocking=arguments.blocking) if is_plain else ""
    conclusion = Conclusion(ran.ended, arguments.blocking, template)
    judged = judge(ran.dump, conclusion, chosen, is_timed=ran.is_timed)
    ran = with_code(ran, judged.verdicts)
    done = RunDocument(result=ran, command=request.command, judged=judged)
    if arguments.interpret and ran.launches:
        message(
            "note: Triton's interpreter ran the kernels, with blocks that were chosen here: what "
            "the compiler does to them is not seen"
        )
    if arguments.json:
        emit(done)
    else:
        _show(done)
        if recorded is not None:
            _show_replay(ran, recorded)
        if ran.crashed:
            hint = (
                ""
                if request.is_probed
                else again(arguments, path, "--probe names,sync", blocking=False)
            )
            message(*_crash(done, hint))
        for verdict, command_line in done.judged.pairs:
            say(*verdict_lines(verdict, command_line))
        _tell(done)
    return ran.code


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


@contextmanager
def _progress(
    artifact: Artifact, chosen: Selection | None
) -> Iterator[Callable[[int], None] | None]:
    """Counts launches, unless there are few, or probes print to the same terminal."""
    total = 0 if chosen is None else len(artifact.launches)
    prints = chosen is not None and set(chosen.probes) & {"print", "names"}
    if total < _LONG or (prints and sys.stdout.isatty()):
        yield None
        return
    with counting() as bar:
        yield lambda done: bar(done, total)


def _show(done: RunDocument) -> None:
    ran = done.result
    # The table of times lists the launches, too.
    if (rows := list(_rows(done))) and (not ran.is_timed or any(row[3] for row in rows)):
        head = ["#", "kernel", "runs", "writes", "type", *_STATISTICS]
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


def _show_replay(ran: RunResult, recorded: RecordedCall) -> None:
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


def _tell(done: RunDocument) -> None:
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


def _crash(done: RunDocument, probed: str) -> list[str]:
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
    for launch, runs, outputs in done.launches:
        first = [str(launch.index), launch.kernel, str(runs)]
        for row in outputs or [{}]:
            cells = [""] * 8
            if "arg" in row:
                kind = short_dtype(row["dtype"]) + str(row["shape"])
                numbers = [figure(row[key]) for key in _STATISTICS] if "numel" in row else [""] * 6
                cells = [row["arg"], kind, *numbers]
            yield [*first, *cells]
            first = ["", "", ""]
