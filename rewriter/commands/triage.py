"""`rewriter triage`: why does it crash, in one command.

The steps are those of AOTInductor's debugging guide (in torch's docs/source,
torch.compiler_aot_inductor_debugging_guide.md), for any artifact, and for a program through
Inductor's cache: does it crash, does it with launches that are waited for, and in which launch.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from rewriter.artifact.types import Artifact
from rewriter.commands import _triage, _triage_program
from rewriter.commands._common import emit_json, from_here, steps, verdict_lines
from rewriter.commands._parser import Parser
from rewriter.commands._program import behind_dashes
from rewriter.commands._run import add_run_options, again, judge
from rewriter.commands._triage import Steps
from rewriter.commands.run import open_artifact
from rewriter.core.errors import DIFFERS, INTERRUPTED, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.terminal import message, say
from rewriter.diagnosis.conclusion import OPTIONS, Conclusion, next_command, write_conclusion
from rewriter.diagnosis.verdict import Verdict
from rewriter.execution.run_result import InterruptedRunError, RunResult
from rewriter.execution.runner import blocking_environment, run
from rewriter.instrumentation import api
from rewriter.instrumentation.types import Selection

_QUIET = {"REWRITER_QUIET": "1"}  # the steps are what is printed; the record has the rest


def add(parser: Parser) -> None:
    parser.takes = "ARTIFACT | -- COMMAND ..."
    parser.add_argument(
        "artifact",
        metavar="ARTIFACT",
        nargs="+",
        help="a wrapper or a package, or after -- a program that calls torch.compile",
    )
    add_run_options(parser)
    parser.add_examples(
        ("a program that crashes", "rewriter triage -- python train.py"),
        ("one that hangs", "rewriter triage --timeout 60 -- python train.py"),
        ("a package and the inputs that crash it", "rewriter triage model.pt2 --args bad.pt"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    if (command := behind_dashes(arguments)) is not None:
        return _triage_program.act(arguments, command)
    if len(arguments.artifact) > 1:
        raise RewriterError(
            "several-artifacts",
            f"triage takes one artifact, and was given {', '.join(arguments.artifact)}",
            hint="For a program, put -- in front of its command line.",
        )
    return _artifact(arguments, open_artifact(arguments))


def _artifact(arguments: argparse.Namespace, artifact: Artifact) -> int:
    wrapper = artifact.only
    if wrapper.probes is not None:
        raise api.already_instrumented(
            wrapper, "Name the plain file, or `rewriter strip` it first."
        )
    taken = Steps(quiet=arguments.json)
    ran = _run(artifact, arguments)
    plain = taken.add(_triage.AS_IT_IS, _end(ran), ran.seconds)
    if ran.interrupted:
        return _triage.interrupted(arguments, taken)
    if wrapper.devices:
        ran = _run(artifact, arguments, environment=blocking_environment(), muted=plain)
        blocking = taken.add(_triage.WAITING, _end(ran), ran.seconds)
        if ran.interrupted:
            return _triage.interrupted(arguments, taken)
    else:
        taken.say(f"   on the CPU alone nothing is asynchronous: no run with {_triage.WAITING}")
        blocking = False
    if not plain and not blocking:
        return _triage.nothing(arguments, taken)
    ran, verdicts = _probed(artifact, arguments, taken, blocking=blocking)
    template = again(arguments, OPTIONS, blocking=blocking)
    if ran.dump is not None:
        write_conclusion(ran.dump, Conclusion(ran.ended, blocking, template))
    following = [next_command(template, verdict) for verdict in verdicts]
    if arguments.json:
        content = {
            "artifact": str(artifact.path),
            "steps": taken.json(),
            "verdict": verdicts[0].json() if verdicts else None,
            "verdicts": [verdict.json() for verdict in verdicts],
            "next": following[0] if following else "",
            "unexpected": list(ran.unexpected),
            "dump": None if ran.dump is None else str(ran.dump),
        }
        emit_json("triage", content)
    else:
        _tell(ran, verdicts, following)
    if arguments.args is None:
        message("note: the inputs are those of the wrapper's own get_args(), which are random.")
    if ran.dump is not None:
        message(f"dump: {from_here(ran.dump)}")
    return INTERRUPTED if ran.interrupted else DIFFERS


def _probed(
    artifact: Artifact, arguments: argparse.Namespace, taken: Steps, *, blocking: bool
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The run that tells the launch; where reading values hides the crash, one that reads none."""
    for names in (_triage.telling(), ["names"]):
        environment = {**_QUIET, **(blocking_environment() if blocking else {})}
        ran = _run(
            artifact, arguments, api.select(names), environment=environment, muted=bool(taken.done)
        )
        verdicts = judge(ran, blocking=blocking)
        crash = next((verdict for verdict in verdicts if verdict.ended is not None), None)
        note = f", in launch {crash.label}" if crash is not None else ""
        if taken.add(f"with the probes {','.join(names)}", _end(ran), ran.seconds, note):
            break
        # The second of the two replaces the record of the first.
        arguments.overwrite = arguments.overwrite or arguments.dump is not None
    return ran, verdicts


def _run(
    artifact: Artifact,
    arguments: argparse.Namespace,
    selection: Selection | None = None,
    *,
    environment: Mapping[str, str] = {},
    muted: bool = False,
) -> RunResult:
    try:
        return run(
            artifact,
            selection,
            args=arguments.args,
            constants=arguments.constants,
            imports=arguments.imports,
            dump=arguments.dump if selection is not None else None,
            seed=arguments.seed,
            overwrite=arguments.overwrite,
            timeout=arguments.timeout,
            environment=environment,
            command=arguments.command_line,
            quiet=True,
            muted=muted,
            report=steps(),
        )
    except InterruptedRunError as stopped:
        return stopped.result


def _end(ran: RunResult) -> ExitStatus | None:
    return ran.ended if ran.crashed else None


def _tell(ran: RunResult, verdicts: Sequence[Verdict], following: Sequence[str]) -> None:
    for row in ran.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")
    for verdict, command in zip(verdicts, following, strict=True):
        say(*verdict_lines(verdict, command))
    if not ran.crashed:
        say(_triage.UNPROBED.format("`rewriter run`"))
    elif not any(verdict.ended for verdict in verdicts):
        does = "was stopped" if ran.ended.stopped else "crashes"
        say(f"verdict: it {does} before its first launch: {ran.ended}")
