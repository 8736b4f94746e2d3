"""`rewriter triage -- COMMAND`: the steps for a program. The last goes through Inductor's cache."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace

from rewriter.commands import _program, _triage
from rewriter.commands._common import emit_json
from rewriter.commands._triage import Steps
from rewriter.core import json_text
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.execution import gpu, program
from rewriter.execution.program import run_killable
from rewriter.execution.runner import blocking_environment
from rewriter.execution.standard_error import StandardError, exception
from rewriter.execution.standard_input import StandardInput


def act(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments)
    program.require(command)
    taken = Steps(quiet=arguments.json)
    given = StandardInput()
    plain = _start(arguments, command, given, taken, _triage.AS_IT_IS, {})
    if plain is not None and plain.interrupted:
        return _triage.interrupted(arguments, taken)
    blocking = None
    if why := gpu.why_none(command):
        taken.say(
            f"   {why}, and on the CPU nothing is asynchronous: no run with {_triage.WAITING}"
        )
    else:
        added = blocking_environment()
        blocking = _start(arguments, command, given, taken, _triage.WAITING, added)
        if blocking is not None and blocking.interrupted:
            return _triage.interrupted(arguments, taken)
    if plain is None and blocking is None:
        return _triage.nothing(arguments, taken)
    return _probed(arguments, command, given, taken, blocking=blocking is not None)


def _probed(
    arguments: argparse.Namespace,
    command: Sequence[str],
    given: StandardInput,
    taken: Steps,
    *,
    blocking: bool,
) -> int:
    """The run that tells the launch."""
    from rewriter.commands._top import parser

    words = ["rewriter", "run", "--probe", ",".join(_triage.telling())]
    words += ["--quiet"] + ["--blocking"] * blocking + ["--overwrite"] * arguments.overwrite
    words += ["--timeout", f"{arguments.timeout:g}"] if arguments.timeout else []
    words += ["--dump", arguments.dump] if arguments.dump else []
    words += ["--json"] * arguments.json + ["--", *command]
    taken.say(f"{len(taken.done) + 1}. {shlex.join(words)}")
    options = parser().parse_args(words[1:])
    options.command_line = shlex.join(words)
    refused = None
    with redirect_stdout(io.StringIO()) if arguments.json else nullcontext() as said:
        try:
            code = _program.act(options, command, standard_input=given)
        except RewriterError as error:
            refused = error
    if said is not None:
        # The steps before are known, whatever became of this one.
        ran = said.getvalue()
        found = json_text.parse(ran.encode()) if ran else None
        emit_json("triage", {"steps": taken.json(), "run": found})
    if refused is not None:
        raise refused
    if code == OK:
        taken.say(_triage.UNPROBED.format("the program"))
    return code or DIFFERS


def _start(
    arguments: argparse.Namespace,
    command: Sequence[str],
    given: StandardInput,
    taken: Steps,
    name: str,
    added: Mapping[str, str],
) -> ExitStatus | None:
    """Run the program as it is; how it ended, `None` if it came to its end."""
    started = time.perf_counter()
    shown = not taken.crashed  # it is the same the second time
    said = StandardError(shown=shown)
    try:
        with said.reading():
            found = run_killable(
                command,
                {**os.environ, **added},
                timeout=arguments.timeout,
                stdin=given,
                stdout=said.descriptor if shown else sys.stderr,
                stderr=said.descriptor,
            )
    except OSError as error:
        raise RewriterError(
            "no-program",
            f"cannot start {command[0]}: {error.strerror}",
            hint="Write after -- what starts the program, such as python train.py.",
        ) from error
    if found.code and not found.stopped:
        found = replace(found, message=exception(said.text))
    ended = None if found.code == 0 else found
    taken.add(name, ended, time.perf_counter() - started)
    return ended
