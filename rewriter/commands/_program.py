"""`rewriter run -- COMMAND`: runs a program of the user with probes, and prints what is in the dump
that it left."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.commands._options import RunOptions, options_given, refuse_idle, refuse_options
from rewriter.commands._output import NAMED, emit, from_here, verdict_lines, warn_about
from rewriter.commands._selection import ProbedRunOptions, check_variables, names_probes
from rewriter.commands._selection import selection as choose_probes
from rewriter.core.errors import OK, RewriterError
from rewriter.core.labels import short
from rewriter.core.quantities import comma_separated
from rewriter.core.terminal import Line, level_style, message, say, table
from rewriter.core.text import counted, some
from rewriter.diagnosis.judged import Judged, judge
from rewriter.diagnosis.nonfinite_origin import skipped_note
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.diagnosis.verdict_text import OPTIONS, WRAPPER
from rewriter.dump import recorded, timing
from rewriter.dump.directory import dump_directory
from rewriter.dump.document_files import was_stopped
from rewriter.dump.timing import Timed
from rewriter.execution.conclusion import Conclusion
from rewriter.execution.hook import run as hooked
from rewriter.execution.hook.run import HookedRun, Request
from rewriter.execution.standard_error import EARLY, how_ended
from rewriter.instrumentation.matching import NO_MATCH
from rewriter.instrumentation.select import no_probes
from rewriter.instrumentation.types import Selection

_SHOWN = 30  # launches in a table of times
_ROOM = 64 << 10  # bytes: a disk with less of them is full, though small files may still fit


def no_program(words: Sequence[str]) -> RewriterError:
    """The error if there are several words, and no `--` in front of them."""
    start = shlex.join(["python", *words] if words[0].endswith(".py") else words)
    return RewriterError(
        "no-program",
        f"{words[0]!r} is not behind --",
        hint="Put -- in front of the program: options after it are the program's own: "
        f"rewriter run -- {start}",
    )


def refuse_options_of_artifacts(arguments: RunOptions, names: str = "imports") -> None:
    """Refuse options of how an artifact is run, which mean nothing for a program, and the further
    options in `names`. Commands that check launches import what registers their operators."""
    names = f"args constants {names} models seed"
    hint = "Drop the option; `rewriter run --wrapper` chooses among the wrappers of a program."
    refuse_options(arguments, names, "a program brings its own", hint)


def act(arguments: ProbedRunOptions, command: Sequence[str]) -> int:
    """Run a program with probes in the wrappers that it loads, and report the results."""
    # With `names`, a crash can be attributed to a launch.
    selection = probes_of(arguments)
    request = replace(
        request_of(arguments, command, selection),
        blocking=arguments.blocking,
        quiet=_is_quiet(arguments),
    )
    probed = run_probed(request)
    if arguments.json:
        emit(probed)
    show(probed)
    return probed.code


def print_environment(arguments: ProbedRunOptions, words: Sequence[str]) -> int:
    """Print the variables with which a program is probed that somebody else starts."""
    idle = options_given(arguments, "json", "blocking", "timeout")
    idle += [shlex.join(words)] * bool(words)
    refuse_idle(idle, "--print-env starts nothing", "Set the printed variables in its place.")
    from rewriter.execution.hook import serve

    selection = probes_of(arguments)
    found = serve.variables(
        selection,
        comma_separated(*arguments.wrappers),
        dump_directory(Path("cache"), arguments.dump, overwrite=arguments.overwrite),
        quiet=_is_quiet(arguments),
        command=arguments.command_line,
    )
    for line in serve.exports(found):
        say(line)
    return OK


def request_of(arguments: RunOptions, command: Sequence[str], selection: Selection) -> Request:
    """A run of a program with these probes, as the options say; what probes print is dropped."""
    return Request(
        program=tuple(command),
        selection=selection,
        globs=comma_separated(*arguments.wrappers),
        dump=arguments.dump,
        overwrite=arguments.overwrite,
        timeout=arguments.timeout,
        redirected=arguments.json,
        command=arguments.command_line,
    )


def _is_quiet(arguments: ProbedRunOptions) -> bool:
    """Whether probes print nothing: nobody named one, nor may name one later."""
    return arguments.quiet or not (arguments.dormant or names_probes(arguments))


def run_probed(request: Request) -> ProgramRunDocument:
    """Run a program with probes in the wrappers that it loads, and read the dump that it left. If
    that cannot be read, this only warns: the rest of the report does not depend on it."""
    run, judged = hooked.run(request, message), Judged()
    conclusion = Conclusion(run.ended, request.blocking, template(request))
    is_timed = "time" in request.selection.probes
    try:
        judged = judge(run.dump, conclusion, request.selection, is_timed=is_timed)
    except RewriterError as error:
        message(f"warning: {error.message}")
    return ProgramRunDocument(request=request, run=run, judged=judged)


def probes_of(arguments: ProbedRunOptions) -> Selection:
    """The probes for a program."""
    chosen = choose_probes(arguments, default="names,print")
    if chosen is None:
        raise no_probes()
    check_variables(chosen)
    return chosen


def show(probed: ProgramRunDocument, *, absorbed: bool = True) -> None:
    """The report: findings on standard output, unless JSON is there, and the rest on standard
    error. `absorbed` is whether it has the verdicts about NaN that no result has."""
    request, run, judged = probed.request, probed.run, probed.judged
    tell = message if request.redirected else say
    warn(run)
    if run.probed:
        message(*_calls(run))
    if judged.times:
        message(*_times(judged.times))
    if (wrong := run.summary.unexpected) is not None:
        text = f"unexpected input {wrong.row.name}: {wrong.row.unexpected}"
        tell(f"{text}, {wrong.run}, {short(wrong.artifact)}", style=level_style("error"))
    if run.interrupted:
        message("interrupted")
    elif run.ended.code != 0 and not any(isinstance(x, CrashVerdict) for x in judged.verdicts):
        by_probe = run.dump is not None and was_stopped(run.dump)
        why = ": --stop ended it at the first NaN" if by_probe else ""
        message(f"{shlex.join(request.program)}: {how_ended(run.ended)}{why}")
        if run.probed and not by_probe and not run.ended.raised:
            message("no launch was recorded as running when it ended")
            if run.ended.timed_out and not run.summary.launches:
                message(f"note: {EARLY}")
    for verdict, command in judged.pairs:
        if absorbed or isinstance(verdict, CrashVerdict) or not verdict.absorbed:
            tell(*verdict_lines(verdict, command))
    sys.stdout.flush()
    if skipped := skipped_note(judged.skipped):
        message(f"note: {skipped}")
    if run.dump is not None:
        if not judged.verdicts and (notes := recorded.notes(run.dump)):
            message(notes)
        dump = from_here(run.dump)
        message(f"dump: {dump}; see it with: rewriter report {shlex.quote(str(dump))}")
    if judged.trace is not None:
        message(f"trace for Perfetto or chrome://tracing: {from_here(judged.trace)}")


def warn(run: HookedRun) -> None:
    """Warn about launches and wrappers without probes."""
    for loaded in run.probed:
        if loaded.result is not None:
            # Parts of the selection that match nothing here may match in another wrapper.
            warn_about(replace(loaded.result.plan, unmatched=()), f"{loaded.short}: ")
    unmatched = [
        set(loaded.result.plan.unmatched) for loaded in run.probed if loaded.result is not None
    ]
    for part in sorted(set.intersection(*unmatched) if unmatched else ()):
        message(f"warning: there is no {part}")
    without = 0
    for loaded in run.refused:
        assert loaded.error is not None
        if loaded.error.slug in NO_MATCH:
            without += 1
        else:
            message(f"warning: {loaded.short} is not instrumented: {loaded.error.message}")
    if without:
        message(f"{counted(without, 'wrapper')} ran without probes, as no launch there was chosen")
    reasons: dict[str, list[str]] = {}
    for other in run.unprobed:
        reasons.setdefault(other.reason, []).append(short(other.path))
    for reason, names in reasons.items():
        message(f"warning: not probed: {some(names, NAMED)}: {reason}")


def _calls(ran: HookedRun) -> list[Line]:
    """A table of calls by wrapper; wrappers without calls are summed up."""
    calls = {loaded.path: ran.summary.calls.get(loaded.path.name, 0) for loaded in ran.probed}
    asked = ran.probed[0].result.selection if ran.probed and ran.probed[0].result else None
    chosen = asked is not None and bool(asked.calls or asked.last)
    is_full = ran.dump is not None and shutil.disk_usage(ran.dump).free < _ROOM
    # The probe `record` keeps only the last calls, and dormant probes those that were asked for.
    is_few = asked is not None and (asked.dormant or "record" in asked.probes)
    is_part = chosen or is_full or is_few
    rows = [["wrapper", "graph", "launches", "calls recorded" if is_part else "calls"]]
    rows += [
        [loaded.short, loaded.wrapper.graph, str(len(loaded.result.plan.probed)), str(number)]
        for loaded in ran.probed
        if loaded.result is not None and (number := calls[loaded.path])
    ]
    lines: list[Line] = [*table(rows, stream="stderr")] if len(rows) > 1 else []
    idle = [short(path) for path, number in calls.items() if not number]
    if idle:
        if chosen:
            never = "no call among those chosen"
        else:
            never = "no call recorded" if is_part else "never called"
        lines.append(f"{never}: {counted(len(idle), 'wrapper')}: {some(idle, NAMED)}")
    lines.append(f"{counted(ran.summary.launches, 'launch')} recorded")
    if is_full:
        lines.append("the disk of the dump is full: what happened after that is not recorded")
    return lines


def _times(times: Sequence[Timed]) -> list[Line]:
    shown = tuple(times[:_SHOWN])
    rows = timing.lines(shown, name=short)
    lines: list[Line] = [*table(rows, stream="stderr")]
    rest = times[_SHOWN:]
    if rest:
        share = sum(timed.share for timed in rest)
        lines.append(f"{counted(len(rest), 'launch')} more, {share:.1%} of the time")
    return lines


def template(request: Request) -> str:
    """The command to run the program again, with placeholders for the wrapper and the probes."""
    words = ["rewriter", "run", "--wrapper", f"{WRAPPER}*", OPTIONS]
    words += ["--blocking"] * request.blocking
    if request.timeout is not None:
        words += ["--timeout", f"{request.timeout:g}"]
    return shlex.join([*words, "--", *request.program])
