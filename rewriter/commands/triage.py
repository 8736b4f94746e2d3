"""`rewriter triage`: why does it crash, in one command.

The steps are those of AOTInductor's debugging guide (in torch's docs/source,
torch.compiler_aot_inductor_debugging_guide.md), for any artifact, and for a program through
Inductor's cache: does it crash, does it with launches that are waited for, and in which launch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass

from rewriter import api, probes
from rewriter.artifact import Artifact
from rewriter.cache import program
from rewriter.commands._common import emit_json, steps, verdict_lines
from rewriter.commands._parser import Parser
from rewriter.commands.run import add_run_options, again, judge
from rewriter.conclusion import OPTIONS, Conclusion, next_command, write_conclusion
from rewriter.errors import DIFFERS, OK, RewriterError
from rewriter.runner import Ran, blocking_environment, run, watch
from rewriter.terminal import message, say
from rewriter.types import Json, Selection
from rewriter.verdict import Ended, Verdict

_QUIET = {"REWRITER_QUIET": "1"}  # the steps are what is printed; the record has the rest
_UNPROBED = (
    "verdict: it crashes without probes only: it depends on timing, or on where its memory lies. "
    "On NVIDIA, `compute-sanitizer --target-processes all` in front of {} looks for both."
)
_WAITING = "each launch waited for, no memory cached"


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


@dataclass(frozen=True)
class Step:
    """One of the runs, and how it ended."""

    name: str
    crashed: bool
    how: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.how} ({self.seconds:.1f} s)"

    def json(self) -> Json:
        return {
            "name": self.name,
            "crashed": self.crashed,
            "how": self.how,
            "seconds": round(self.seconds, 3),
        }


class _Steps:
    """Says each step as it is done."""

    def __init__(self, *, quiet: bool) -> None:
        self._say: Callable[[str], None] = message if quiet else say
        self.done: list[Step] = []

    def add(self, name: str, ended: Ended | None, seconds: float, note: str = "") -> bool:
        """Add a run; `None` for one that came to its end. Whether it crashed."""
        how = "ran to its end" if ended is None else str(ended)
        if ended is not None and not ended.timed_out:
            how = f"crashed: {how}"
        self.done.append(Step(name, ended is not None, how + note, seconds))
        self._say(f"{len(self.done)}. {self.done[-1]}")
        sys.stdout.flush()
        return ended is not None

    def say(self, text: str) -> None:
        self._say(text)

    def json(self) -> list[Json]:
        return [step.json() for step in self.done]


def act(arguments: argparse.Namespace) -> int:
    words = shlex.split(arguments.command_line)
    if "--" in words:
        return _program(arguments, words[words.index("--") + 1 :])
    if len(arguments.artifact) > 1:
        raise RewriterError(
            "several-artifacts",
            f"triage takes one artifact, and was given {', '.join(arguments.artifact)}",
            hint="For a program, put -- in front of its command line.",
        )
    (arguments.artifact,) = arguments.artifact
    return _artifact(arguments)


def _artifact(arguments: argparse.Namespace) -> int:
    artifact = api.open(arguments.artifact, models=arguments.models).choose(arguments.wrappers)
    wrapper = artifact.only
    if wrapper.probes is not None:
        raise api.already_instrumented(
            wrapper, "Name the plain file, or `rewriter strip` it first."
        )
    taken = _Steps(quiet=arguments.json)
    ran = _run(artifact, arguments)
    plain = taken.add("as it is", _end(ran), ran.seconds)
    if wrapper.devices:
        ran = _run(artifact, arguments, environment=blocking_environment(), muted=plain)
        blocking = taken.add(_WAITING, _end(ran), ran.seconds)
    else:
        taken.say(f"   on the CPU alone nothing is asynchronous: no run with {_WAITING}")
        blocking = False
    if not plain and not blocking:
        return _nothing(arguments, taken)
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
        _tell(ran, verdicts, following, taken)
    if arguments.args is None:
        message("note: the inputs are those of the wrapper's own get_args(), which are random.")
    if ran.dump is not None:
        message(f"dump: {ran.dump}")
    return DIFFERS


def _probed(
    artifact: Artifact, arguments: argparse.Namespace, taken: _Steps, *, blocking: bool
) -> tuple[Ran, tuple[Verdict, ...]]:
    """The run that tells the launch; where reading values hides the crash, one that reads none."""
    for names in (_telling(), ["names"]):
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


def _telling() -> list[str]:
    return [name for name in ("names", "sync", "inputs") if name in probes.registry()]


def _run(
    artifact: Artifact,
    arguments: argparse.Namespace,
    selection: Selection | None = None,
    *,
    environment: Mapping[str, str] = {},
    muted: bool = False,
) -> Ran:
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


def _end(ran: Ran) -> Ended | None:
    return ran.ended if ran.crashed else None


def _tell(ran: Ran, verdicts: Sequence[Verdict], following: Sequence[str], taken: _Steps) -> None:
    for row in ran.unexpected:
        say(f"unexpected input {row.get('arg', '')}: {row['unexpected']}")
    for verdict, command in zip(verdicts, following, strict=True):
        say(*verdict_lines(verdict, command))
    if not ran.crashed:
        say(_UNPROBED.format("`rewriter run`"))
    elif not any(verdict.ended for verdict in verdicts):
        say(f"verdict: it crashes before its first launch: {ran.ended}")


def _nothing(arguments: argparse.Namespace, taken: _Steps) -> int:
    text = f"it ran; nothing crashed in {len(taken.done)} run{'s' * (len(taken.done) != 1)}"
    if arguments.json:
        none: Json = {"verdict": None, "next": "", "unexpected": [], "dump": None}
        emit_json("triage", {"steps": taken.json(), **none})
    else:
        say(text)
    return OK


def _program(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """The same for a program: the last step goes through Inductor's cache."""
    _refuse(arguments)
    program.require(command)
    taken = _Steps(quiet=arguments.json)
    plain = _start(arguments, command, taken, "as it is", {})
    blocking = _start(arguments, command, taken, _WAITING, blocking_environment())
    if not plain and not blocking:
        return _nothing(arguments, taken)
    from rewriter.cli import main

    words = ["cache", "run", "--probe", ",".join(_telling())]
    words += ["--quiet"] + ["--blocking"] * blocking + ["--overwrite"] * arguments.overwrite
    words += ["--timeout", f"{arguments.timeout:g}"] if arguments.timeout else []
    words += ["--dump", arguments.dump] if arguments.dump else []
    words += ["--json"] * arguments.json
    taken.say(f"{len(taken.done) + 1}. {shlex.join(['rewriter', *words, '--', *command])}")
    sys.stdout.flush()
    with redirect_stdout(io.StringIO()) if arguments.json else nullcontext() as said:
        code = main([*words, "--", *command])
    if code == OK:
        taken.say(_UNPROBED.format("the program"))
    if said is not None:
        ran = said.getvalue()
        emit_json("triage", {"steps": taken.json(), "run": json.loads(ran) if ran else None})
    return code or DIFFERS


def _refuse(arguments: argparse.Namespace) -> None:
    given = {
        "--args": arguments.args,
        "--constants": arguments.constants,
        "--import": arguments.imports,
        "--seed": arguments.seed,
        "--model": arguments.models,
        "--wrapper": arguments.wrappers,
    }
    if idle := [name for name, value in given.items() if value]:
        raise RewriterError(
            "idle-options",
            f"{', '.join(idle)} given, but a program brings its own",
            hint="Drop the option.",
        )


def _start(
    arguments: argparse.Namespace,
    command: Sequence[str],
    taken: _Steps,
    name: str,
    added: Mapping[str, str],
) -> bool:
    started = time.perf_counter()
    try:
        code = watch(
            command,
            {**os.environ, **added},
            timeout=arguments.timeout,
            stdout=sys.stderr,
            stderr=subprocess.DEVNULL if any(step.crashed for step in taken.done) else None,
        )
    except OSError as error:
        raise RewriterError(
            "no-program",
            f"cannot start {command[0]}: {error.strerror}",
            hint="Write after -- what starts the program, such as python train.py.",
        ) from error
    ended = None
    if code is None:
        ended = Ended(None, 0, True, f"still running after {arguments.timeout:g} s")
    elif code:
        ended = Ended.of(code)
    return taken.add(name, ended, time.perf_counter() - started)
