"""`rewriter triage ARTIFACT`: the steps for a wrapper or a package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rewriter.commands import _triage
from rewriter.commands._documents.triage import ArtifactTriageDocument
from rewriter.commands._options import RunOptions
from rewriter.commands._output import emit, from_here, steps, verdict_lines
from rewriter.commands._run import again, judge, open_plain, request_of
from rewriter.commands._triage import Steps
from rewriter.core.errors import DIFFERS, INTERRUPTED
from rewriter.core.exit_status import ExitStatus
from rewriter.core.terminal import message, say
from rewriter.diagnosis.verdict import CrashVerdict, Verdict
from rewriter.diagnosis.verdict_text import OPTIONS, next_command
from rewriter.execution.conclusion import Conclusion, write_conclusion
from rewriter.execution.host_process import HostOutput
from rewriter.execution.run_result import RunResult
from rewriter.execution.runner import SILENT, RunRequest, blocking_environment, run_wrapper
from rewriter.instrumentation.select import select


def act(arguments: RunOptions, path: str) -> int:
    artifact = open_plain(arguments, path)
    wrapper = artifact.only
    request = request_of(arguments, artifact)
    taken = Steps(json=arguments.json)
    plain = _run(replace(request, dump=None))
    crashed = taken.add(_triage.AS_IT_IS, _end(plain), plain.seconds)
    if plain.ended.interrupted:
        return taken.interrupted()
    blocking = False
    if wrapper.devices:
        waiting = replace(
            request, dump=None, environment=blocking_environment(), output=HostOutput(True, crashed)
        )
        waited = _run(waiting)
        blocking = taken.add(_triage.WAITING, _end(waited), waited.seconds)
        if waited.ended.interrupted:
            return taken.interrupted()
    else:
        taken.say(f"   left out: {_triage.WAITING} (no launch is on a GPU)")
    if not crashed and not blocking:
        return taken.nothing()
    result, verdicts = _probed(request, taken, blocking=blocking)
    template = again(arguments, path, OPTIONS, blocking=blocking)
    if result.dump is not None:
        write_conclusion(result.dump, Conclusion(result.ended, blocking, template))
    following = [next_command(template, verdict) for verdict in verdicts]
    if arguments.json:
        document = ArtifactTriageDocument(
            artifact=str(artifact.path),
            steps=tuple(taken.done),
            verdicts=verdicts,
            next=next(iter(following), ""),
            unexpected=result.unexpected,
            dump=None if result.dump is None else str(result.dump),
        )
        emit(document)
    else:
        _tell(result, verdicts, following)
    if arguments.args is None:
        message("note: the inputs are those of the wrapper's own get_args(), which are random.")
    if result.dump is not None:
        message(f"dump: {from_here(result.dump)}")
    return INTERRUPTED if result.ended.interrupted else DIFFERS


def _probed(
    request: RunRequest, taken: Steps, *, blocking: bool
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The run that finds the launch. If reading values hides the crash, another run reads none."""
    environment = {**SILENT, **(blocking_environment() if blocking else {})}
    overwrite = request.overwrite
    for names in (_triage.probes_for_crash(), ["names"]):
        result = _run(
            replace(
                request,
                selection=select(names),
                environment=environment,
                output=HostOutput(quiet=True, muted=bool(taken.done)),
                overwrite=overwrite,
            )
        )
        verdicts = judge(result, blocking=blocking)
        crash = next((verdict for verdict in verdicts if isinstance(verdict, CrashVerdict)), None)
        note = f", in launch {crash.label}" if crash is not None else ""
        if taken.add(f"with the probes {','.join(names)}", _end(result), result.seconds, note):
            break
        # The second of the two replaces the record of the first.
        overwrite = request.overwrite or request.dump is not None
    return result, verdicts


def _run(request: RunRequest) -> RunResult:
    return run_wrapper(replace(request, report=steps()))


def _end(result: RunResult) -> ExitStatus | None:
    return result.ended if result.crashed else None


def _tell(result: RunResult, verdicts: Sequence[Verdict], following: Sequence[str]) -> None:
    for row in result.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")
    for verdict, command in zip(verdicts, following, strict=True):
        say(*verdict_lines(verdict, command))
    if not result.crashed:
        say(_triage.UNPROBED.format("`rewriter run`"))
    elif not any(isinstance(verdict, CrashVerdict) for verdict in verdicts):
        does = "was stopped" if result.ended.stopped else "crashes"
        say(f"verdict: it {does} before its first launch: {result.ended}")
