"""The steps of `rewriter triage`: does it crash, does it with launches that are waited for, and in
which launch. The last step has probes. Of a dump, where the program that left it ended."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.commands import _program
from rewriter.commands._documents.triage import (
    ArtifactTriageDocument,
    EmptyTriageDocument,
    ProgramTriageDocument,
    TriageStep,
)
from rewriter.commands._options import RunOptions, only_artifact, refuse_options
from rewriter.commands._output import emit, from_here, steps, verdict_lines
from rewriter.commands._run import again, open_plain, request_of
from rewriter.commands._selection import environment_kernels
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.signals import Signals
from rewriter.core.terminal import message, say
from rewriter.core.text import counted
from rewriter.diagnosis import nonfinite, triage
from rewriter.diagnosis.judged import Judged, judge
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.diagnosis.verdict_text import OPTIONS, next_command
from rewriter.dump.reading import Dump, is_dump, open_dump
from rewriter.execution import program
from rewriter.execution.conclusion import Conclusion, read_conclusion, without_conclusion
from rewriter.execution.host_process import HostOutput
from rewriter.execution.run_result import RunResult
from rewriter.execution.runner import SILENT, RunRequest, blocking_environment, run_wrapper
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.select import select

_AS_IT_IS = "without changes"
_WAITING = "waiting for each launch, without cached GPU memory"
_PROBES = "names,sync,inputs"  # they find the launch that crashes
_UNPROBED = (
    "verdict: it crashes without probes only: it depends on timing, or on where its memory lies. "
    "On NVIDIA, `compute-sanitizer --target-processes all` in front of {} looks for both."
)
_GPUS = [Path("/dev", name) for name in ("nvidiactl", "kfd", "dxg")]  # NVIDIA, AMD, both in WSL
# Messages if a CUDA graph cannot be captured because launches are waited for, or memory is not
# cached.
_NOT_CAPTURED = ("capturing", "during capture", "not allocated in pool")


def act(arguments: RunOptions) -> int:
    if arguments.program is not None:
        return _act_program(arguments, arguments.program)
    path = only_artifact(arguments, "triage")
    return _act_dump(arguments, path) if is_dump(path) else _act_artifact(arguments, path)


# Runs it with further variables, and prints nothing if it `is_again`: the same would come. How that
# ended, and its seconds.
_Start = Callable[[Mapping[str, str], bool], tuple[ExitStatus, float]]


class _Steps:
    """Prints each step as it is done; on standard error, if the result is `json`."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._say: Callable[[str], None] = message if json else say
        self.done: list[TriageStep] = []

    def without_probes(self, start: _Start, left_out: str) -> tuple[ExitStatus, ExitStatus] | int:
        """How it ends as it is, and where launches are waited for, which is `left_out` for a reason
        where there is no GPU; or the exit code, where no step with probes follows."""
        ends = [ExitStatus(0), ExitStatus(0)]
        for number, (name, added) in enumerate(
            ((_AS_IT_IS, {}), (_WAITING, blocking_environment()))
        ):
            if added and left_out:
                self.say(f"   left out: {_WAITING} ({left_out})")
                continue
            ended, seconds = start(added, ends[0].code != 0)
            self.add(name, ended, seconds)
            if ended.interrupted:
                self._emit_nothing()
                message(
                    "interrupted before a run had probes; for what hangs, --timeout SECONDS ends "
                    "each run, and the last one names the launch"
                )
                return INTERRUPTED
            ends[number] = ended
        if all(ended.code == 0 for ended in ends):
            self._emit_nothing()
            if not self.json:
                say(f"it ran; nothing crashed in {counted(len(self.done), 'run')}")
            return OK
        return ends[0], ends[1]

    def add(self, name: str, ended: ExitStatus, seconds: float, note: str = "") -> None:
        """Add a run."""
        how = "ran to its end" if ended.code == 0 else str(ended)
        if ended.code != 0 and not ended.stopped:
            how = f"crashed: {how}"
        step = TriageStep(
            name=name, crashed=ended.code != 0, how=how + note, seconds=round(seconds, 3)
        )
        self.done.append(step)
        self.say(f"{len(self.done)}. {step}")

    def say(self, text: str) -> None:
        self._say(text)
        sys.stdout.flush()

    def _emit_nothing(self) -> None:
        if self.json:
            emit(EmptyTriageDocument(steps=tuple(self.done)))


def _act_artifact(arguments: RunOptions, path: str) -> int:
    artifact = open_plain(arguments, path)
    request = request_of(arguments, artifact)
    taken = _Steps(json=arguments.json)

    def start(added: Mapping[str, str], is_again: bool) -> tuple[ExitStatus, float]:
        output: HostOutput = "muted" if is_again else "quiet"
        ran = _run(replace(request, dump=None, environment=added, output=output))
        return ran.ended, ran.seconds

    left_out = "" if artifact.only.devices else "no launch is on a GPU"
    ends = taken.without_probes(start, left_out)
    if isinstance(ends, int):
        return ends
    blocking = ends[1].code != 0
    template = again(arguments, path, OPTIONS, blocking=blocking)
    result, judged = _probed(request, taken, template, blocking=blocking)
    if arguments.json:
        document = ArtifactTriageDocument(
            artifact=str(artifact.path),
            steps=tuple(taken.done),
            verdicts=judged.verdicts,
            next=judged.next,
            unexpected=result.unexpected,
            dump=None if result.dump is None else str(result.dump),
        )
        emit(document)
    else:
        _tell(result, judged)
    if arguments.args is None:
        message("note: the inputs are those of the wrapper's own get_args(), which are random.")
    if result.dump is not None:
        message(f"dump: {from_here(result.dump)}")
    return INTERRUPTED if result.ended.interrupted else DIFFERS


def _probed(
    request: RunRequest, taken: _Steps, template: str, *, blocking: bool
) -> tuple[RunResult, Judged]:
    """The run that finds the launch. If reading values hides the crash, another run reads none."""
    request = replace(
        request,
        environment={**SILENT, **(blocking_environment() if blocking else {})},
        output="muted",
    )
    for names in (_PROBES, "names"):
        result = _run(replace(request, selection=select(names)))
        judged = judge(result.dump, Conclusion(result.ended, blocking, template))
        crash = next((x for x in judged.verdicts if isinstance(x, CrashVerdict)), None)
        note = f", in launch {crash.label}" if crash is not None else ""
        taken.add(f"with the probes {names}", result.ended, result.seconds, note)
        if result.crashed:
            break
        # The second of the two replaces the record of the first.
        request = replace(request, overwrite=request.overwrite or request.dump is not None)
    return result, judged


def _run(request: RunRequest) -> RunResult:
    return run_wrapper(replace(request, report=steps()))


def _tell(result: RunResult, judged: Judged) -> None:
    for row in result.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")
    for verdict, command in judged.pairs:
        say(*verdict_lines(verdict, command))
    if not result.crashed:
        say(_UNPROBED.format("`rewriter run`"))
    elif not any(isinstance(verdict, CrashVerdict) for verdict in judged.verdicts):
        does = "was stopped" if result.ended.stopped else "crashes"
        say(f"verdict: it {does} before its first launch: {result.ended}")


def _act_program(arguments: RunOptions, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments, "imports wrappers")
    program.require(command)
    taken = _Steps(json=arguments.json)
    given = StandardInput()

    def start(added: Mapping[str, str], is_again: bool) -> tuple[ExitStatus, float]:
        started, environment = time.perf_counter(), {**os.environ, **added}
        with Signals() as signals:
            ended = program.run(
                command,
                environment,
                signals,
                message,
                given,
                timeout=arguments.timeout,
                quiet=True,
                hears=True,
                shown=not is_again,
            )
        return ended, time.perf_counter() - started

    left_out = "" if any(device.exists() for device in _GPUS) else "there is no GPU here"
    ends = taken.without_probes(start, left_out)
    if isinstance(ends, int):
        return ends
    plain, waited = ends
    blocking = waited.code != 0
    if blocking and _is_not_captured(waited):
        # A CUDA graph cannot be captured in blocking mode. Its marks show the launch anyway.
        blocking = _is_not_captured(plain)
    words = ["rewriter", "run", "--probe", _PROBES]
    words += ["--quiet"] + ["--blocking"] * blocking + ["--overwrite"] * arguments.overwrite
    words += ["--timeout", f"{arguments.timeout:g}"] if arguments.timeout else []
    words += ["--dump", arguments.dump] if arguments.dump else []
    words += ["--json"] * arguments.json + ["--", *command]
    line = shlex.join(words)
    taken.say(f"{len(taken.done) + 1}. {line}")
    request = _program.request_of(
        arguments, command, select(_PROBES, kernels=environment_kernels())
    )
    try:
        probed = _program.run_probed(
            replace(request, blocking=blocking, command=line, hears=True, stdin=given)
        )
    except RewriterError:
        # The steps before are known, whatever became of this one.
        if arguments.json:
            emit(ProgramTriageDocument(steps=tuple(taken.done), run=None))
        raise
    if arguments.json:
        emit(ProgramTriageDocument(steps=tuple(taken.done), run=probed))
    _program.show(probed)
    if probed.code == OK:
        taken.say(_UNPROBED.format("the program"))
    return probed.code or DIFFERS


def _is_not_captured(ended: ExitStatus) -> bool:
    message = ended.message.lower()
    return any(text in message for text in _NOT_CAPTURED)


def _act_dump(arguments: RunOptions, path: str) -> int:
    refuse_options(arguments, "args dump timeout overwrite", "a dump is only read")
    opened = open_dump(path)
    known = read_conclusion(opened.home)
    conclusion = known or without_conclusion(opened.home)
    found = _verdicts(opened, conclusion)
    here = {run.name for run in opened.runs}
    verdicts = tuple(verdict for verdict in found if verdict.run in here)
    judged = Judged(verdicts, tuple(next_command(conclusion.again, x) for x in verdicts))
    following = judged.next
    has_crash = any(verdict.state != "over" for verdict in verdicts)
    report = f"rewriter report {shlex.quote(path)}"
    number = () if has_crash else nonfinite.search(opened).verdicts
    if found and not verdicts:
        following = f"rewriter triage {shlex.quote(str(from_here(opened.home)))}"
    elif number and not following:
        following = report
    if arguments.json:
        document = ArtifactTriageDocument(
            artifact=path, steps=(), verdicts=verdicts, next=following, unexpected=(), dump=path
        )
        emit(document)
    else:
        for verdict, command in judged.pairs:
            say(*verdict_lines(verdict, command))
        if found and not verdicts:
            say("verdict: the program did not end in this part of its dump", f"  next: {following}")
        elif not verdicts:
            is_well = conclusion.ended.code == 0
            how = "nothing crashed" if is_well else "the dump names no launch"
            say(*filter(None, [f"verdict: {how}: {conclusion.ended}", opened.caveat]))
        if trigger := opened.manifest.trigger:
            say(f"  written because of {trigger}; see it with: {report}")
        elif number:
            say(f"  {number[0].headline}; see it with: {report}")
    if known is not None:
        return OK if known.ended.code == 0 else DIFFERS
    # A dump that ends between two calls, or of a running program, does not indicate a crash.
    return DIFFERS if has_crash and not conclusion.ended.running else OK


def _verdicts(opened: Dump, conclusion: Conclusion) -> Sequence[CrashVerdict]:
    """Where the program ended: of a part of a dump, too, the whole of it shows that."""
    if conclusion.ended.code == 0:
        return ()
    is_part = opened.home in opened.path.absolute().parents
    whole = open_dump(opened.home) if is_part else opened
    return triage.examine(whole, conclusion.ended, blocking=conclusion.blocking)
