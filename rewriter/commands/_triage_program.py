"""`rewriter triage -- COMMAND`: the steps for a program. The last one has probes."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.commands import _program, _triage
from rewriter.commands import _program_report as report
from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.commands._documents.triage import ProgramTriageDocument
from rewriter.commands._options import RunOptions
from rewriter.commands._output import emit
from rewriter.commands._program_report import ProgramRun
from rewriter.commands._selection import environment_kernels
from rewriter.commands._triage import Steps
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.execution import program
from rewriter.execution.program import run_killable
from rewriter.execution.runner import blocking_environment
from rewriter.execution.standard_error import StandardError
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.select import select

_GPUS = [Path("/dev", name) for name in ("nvidiactl", "kfd", "dxg")]  # NVIDIA, AMD, both in WSL
# Messages if a CUDA graph cannot be captured because launches are waited for, or memory is not
# cached.
_NOT_CAPTURED = ("capturing", "during capture", "not allocated in pool")


def act(arguments: RunOptions, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments, ["imports", "wrappers"])
    program.require(command)
    taken = Steps(json=arguments.json)
    given = StandardInput()
    plain = _start(arguments, command, given, taken, _triage.AS_IT_IS, {})
    if plain is not None and plain.interrupted:
        return taken.interrupted()
    blocking = None
    if not any(device.exists() for device in _GPUS):
        taken.say(f"   left out: {_triage.WAITING} (there is no GPU here)")
    else:
        added = blocking_environment()
        blocking = _start(arguments, command, given, taken, _triage.WAITING, added)
        if blocking is not None and blocking.interrupted:
            return taken.interrupted()
    if plain is None and blocking is None:
        return taken.nothing()
    waits = blocking is not None
    if blocking is not None and _is_not_captured(blocking):
        # A CUDA graph cannot be captured in blocking mode. Its marks show the launch anyway.
        waits = plain is not None and _is_not_captured(plain)
    return _probed(arguments, command, given, taken, blocking=waits)


def _is_not_captured(ended: ExitStatus) -> bool:
    message = ended.message.lower()
    return any(text in message for text in _NOT_CAPTURED)


def _probed(
    arguments: RunOptions,
    command: Sequence[str],
    given: StandardInput,
    taken: Steps,
    *,
    blocking: bool,
) -> int:
    words = ["rewriter", "run", "--probe", ",".join(_triage.probes_for_crash())]
    words += ["--quiet"] + ["--blocking"] * blocking + ["--overwrite"] * arguments.overwrite
    words += ["--timeout", f"{arguments.timeout:g}"] if arguments.timeout else []
    words += ["--dump", arguments.dump] if arguments.dump else []
    words += ["--json"] * arguments.json + ["--", *command]
    line = shlex.join(words)
    taken.say(f"{len(taken.done) + 1}. {line}")
    try:
        selection = select(_triage.probes_for_crash(), kernels=environment_kernels())
        request = _program.request_of(arguments, command, selection)
        probed = _program.run_probed(
            replace(request, blocking=blocking, command=line, hears=True, stdin=given)
        )
    except RewriterError:
        # The steps before are known, whatever became of this one.
        _emit(arguments, taken, None)
        raise
    _emit(arguments, taken, probed)
    report.show(probed)
    if probed.code == OK:
        taken.say(_triage.UNPROBED.format("the program"))
    return probed.code or DIFFERS


def _emit(arguments: RunOptions, taken: Steps, probed: ProgramRun | None) -> None:
    if arguments.json:
        run = None if probed is None else ProgramRunDocument.of(probed)
        emit(ProgramTriageDocument(steps=tuple(taken.done), run=run))


def _start(
    arguments: RunOptions,
    command: Sequence[str],
    given: StandardInput,
    taken: Steps,
    name: str,
    added: Mapping[str, str],
) -> ExitStatus | None:
    """Run the program unchanged. Returns how it ended, `None` if it came to its end."""
    started = time.perf_counter()
    shown = not taken.crashed  # a second run prints the same
    standard_error = StandardError(shown=shown)
    try:
        with standard_error.reading():
            status = run_killable(
                command,
                {**os.environ, **added},
                timeout=arguments.timeout,
                stdin=given,
                stdout=standard_error.descriptor if shown else sys.stderr,
                stderr=standard_error.descriptor,
                grace=program.GRACE,
            )
    except OSError as error:
        raise RewriterError(
            "no-program",
            f"cannot start {command[0]}: {error.strerror}",
            hint="Write after -- what starts the program, such as python train.py.",
        ) from error
    if status.code and not status.stopped:
        status = standard_error.explained(status)
    ended = None if status.code == 0 else status
    taken.add(name, ended, time.perf_counter() - started)
    return ended
