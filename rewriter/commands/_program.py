"""Runs a program of the user with probes: `rewriter run -- COMMAND`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.commands import _program_report as report
from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.commands._options import RunOptions, options_given, refuse_idle, refuse_options
from rewriter.commands._output import emit
from rewriter.commands._program_report import ProgramRun
from rewriter.commands._selection import ProbedRunOptions, check_variables, names_probes
from rewriter.commands._selection import selection as choose_probes
from rewriter.core.errors import OK, RewriterError
from rewriter.core.terminal import message, say
from rewriter.dump.directory import dump_directory
from rewriter.execution.hook.run import Request, run
from rewriter.instrumentation.select import no_probes
from rewriter.instrumentation.types import Selection


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
        emit(ProgramRunDocument.of(probed))
    report.show(probed)
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
        _globs(arguments),
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
        globs=_globs(arguments),
        dump=arguments.dump,
        overwrite=arguments.overwrite,
        timeout=arguments.timeout,
        redirected=arguments.json,
        command=arguments.command_line,
    )


def _is_quiet(arguments: ProbedRunOptions) -> bool:
    """Whether probes print nothing: nobody named one, nor may name one later."""
    return arguments.quiet or not (arguments.dormant or names_probes(arguments))


def _globs(arguments: RunOptions) -> tuple[str, ...]:
    return tuple(x for word in arguments.wrappers for x in word.split(",") if x)


def run_probed(request: Request) -> ProgramRun:
    """Run a program with probes in the wrappers that it loads, and read the dump that it left."""
    return report.analyse(request, run(request, message))


def probes_of(arguments: ProbedRunOptions) -> Selection:
    """The probes for a program."""
    chosen = choose_probes(arguments, default="names,print")
    if chosen is None:
        raise no_probes()
    check_variables(chosen)
    return chosen
