"""`rewriter run` on a wrapper or a package: the request, the run, and the command to repeat it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.recognise import program_hint
from rewriter.artifact.types import Artifact
from rewriter.commands import _run_text as text
from rewriter.commands._documents.run import RunDocument
from rewriter.commands._judged import judge
from rewriter.commands._options import RunOptions, refuse_options
from rewriter.commands._output import counting, emit, steps, verdict_lines
from rewriter.commands._selection import ProbedRunOptions, check_variables, selection
from rewriter.core.errors import RewriterError
from rewriter.core.terminal import message, say
from rewriter.diagnosis.verdict_text import OPTIONS
from rewriter.dump.reading import is_dump
from rewriter.execution import replay
from rewriter.execution.conclusion import Conclusion
from rewriter.execution.replay import RecordedCall
from rewriter.execution.runner import SILENT, RunRequest, blocking_environment, run_wrapper
from rewriter.instrumentation.editable import already_instrumented
from rewriter.instrumentation.types import Selection

_LONG = 20  # launches; with fewer they are not counted


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
    """The command to repeat a run with other probe options; empty if there are no options."""
    if not options:
        return ""
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
    request = replace(
        request_of(arguments, artifact),
        selection=chosen,
        recorded=recorded,
        interpret=arguments.interpret,
        environment={**blocking, **(SILENT if arguments.quiet else {})},
        command=command_to_repeat(arguments),
        output="quiet" if arguments.json else "shown",
        report=steps(),
    )
    with _progress(artifact, chosen) as progress:
        ran = run_wrapper(replace(request, progress=progress))
    # Of what had probes already, no command with other probes is suggested.
    template = again(arguments, path, OPTIONS, blocking=arguments.blocking) if is_plain else ""
    conclusion = Conclusion(ran.ended, arguments.blocking, template)
    judged = judge(ran.dump, conclusion, chosen, is_timed=ran.is_timed)
    done = RunDocument(result=ran, command=request.command, judged=judged)
    if arguments.interpret and ran.launches:
        message(
            "note: Triton's interpreter ran the kernels, with blocks that were chosen here: what "
            "the compiler does to them is not seen"
        )
    if arguments.json:
        emit(done)
    else:
        text.show(done)
        if recorded is not None:
            text.show_replay(ran, recorded)
        if ran.crashed:
            hint = (
                ""
                if request.is_probed
                else again(arguments, path, "--probe names,sync", blocking=False)
            )
            message(*text.crash(done, hint))
        for verdict, command_line in done.judged.pairs:
            say(*verdict_lines(verdict, command_line))
        text.tell(done)
    return ran.code


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def command_to_repeat(arguments: RunOptions) -> str:
    """The command line to repeat the run, which has to overwrite the dump."""
    overwrite = " --overwrite" if arguments.dump and not arguments.overwrite else ""
    return f"{arguments.command_line}{overwrite}"


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
