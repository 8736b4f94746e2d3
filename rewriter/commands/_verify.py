"""The runs of `rewriter verify`, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rewriter.commands import _program
from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.commands._documents.verify import VerifyDocument
from rewriter.commands._options import RunOptions, only_artifact, refuse_options
from rewriter.commands._output import counting, emit, from_here, steps, verdict_lines
from rewriter.commands._run import open_plain, request_of
from rewriter.commands._selection import environment_kernels, nothing_recorded
from rewriter.commands.verify import Arguments
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import level_style, message, say, table
from rewriter.core.text import counted
from rewriter.diagnosis import ruling
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.diagnosis.verification import text
from rewriter.diagnosis.verification.types import Verification
from rewriter.dump.reading import is_dump, is_recorded
from rewriter.execution import program
from rewriter.execution.runner import SILENT, run_wrapper
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Selection

if TYPE_CHECKING:
    from rewriter.diagnosis.verification.given_graphs import GivenGraphs
    from rewriter.diagnosis.verification.references import Reference

_ROWS = 40  # launches up to which all of them are in the table


class _Given(NamedTuple):
    """The graphs and references that the user names."""

    graphs: GivenGraphs | None
    references: Sequence[Reference]


def act(arguments: Arguments) -> int:
    if arguments.program is not None:
        return _act_program(arguments, arguments.program)
    return _act_artifact(arguments, only_artifact(arguments, "verify"))


def _act_artifact(arguments: Arguments, path: str) -> int:
    """Run a wrapper or a package once, and check its launches; or check those of a dump."""
    if is_dump(path):
        refuse_run_options(arguments)
        return _judge(arguments, Path(path), _given(arguments), OK)
    artifact = open_plain(arguments, path)
    claims = _given(arguments)
    request = replace(
        request_of(arguments, artifact),
        selection=_selection(arguments),
        environment=SILENT,
        output="quiet",
        report=steps(),
    )
    ran = run_wrapper(request)
    if ran.ended.interrupted:
        return INTERRUPTED
    if ran.crashed:
        message(f"it did not run to its end: {ran.ended}")
        message(f"find out why: rewriter triage {path}")
    if ran.dump is None or not is_recorded(ran.dump):
        raise nothing_recorded(arguments, ran.dump)
    return _judge(arguments, ran.dump, claims, DIFFERS if ran.crashed else OK)


def _act_program(arguments: Arguments, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments, "")
    program.require(command)
    claims = _given(arguments)
    probed = _program.run_probed(_program.request_of(arguments, command, _selection(arguments)))
    _program.show(probed, absorbed=False)
    if probed.run.interrupted:
        return INTERRUPTED
    dump = probed.run.dump
    if dump is None or not is_recorded(dump):
        raise nothing_recorded(arguments, dump)
    code = DIFFERS if probed.run.ended.code != 0 else OK
    return _judge(arguments, dump, claims, code, probed)


def refuse_run_options(arguments: RunOptions) -> None:
    """Refuse options of a run: a dump is only read."""
    why = "nothing is run: the dump has it all"
    refuse_options(arguments, "args dump wrappers", why, "Drop the option.")


def _selection(arguments: Arguments) -> Selection:
    return select(
        "save",
        kernels=arguments.kernels or environment_kernels(),
        calls=arguments.calls,
        max_bytes=arguments.max_bytes,
        args="all",
        when="both",
    )


def _given(arguments: Arguments) -> _Given:
    """Read what the user names, before anything is run."""
    graphs = given_graphs(arguments.graph)
    if not arguments.references:
        return _Given(graphs, ())
    from rewriter.diagnosis.verification.references import Reference

    register_operators(arguments.imports)
    return _Given(graphs, [Reference.read(reference) for reference in arguments.references])


def _judge(
    arguments: Arguments,
    dump: Path,
    claims: _Given,
    code: int,
    probed: ProgramRunDocument | None = None,
) -> int:
    """`probed` is the run of a program, whose report has been printed."""
    from rewriter.diagnosis.verification.verify import verify

    register_operators(arguments.imports)
    with counting() as bar:
        verification = verify(
            dump,
            graphs=claims.graphs,
            references=claims.references,
            progress=bar,
        )
    if arguments.independent:
        from rewriter.reproduction.independent.checks import check_independently

        verification = check_independently(dump, verification, imports=arguments.imports)
    if probed is not None:
        _show_absorbed(probed, verification)
    if arguments.json:
        emit(VerifyDocument(dump=str(dump), verification=verification))
    else:
        _show(verification, str(from_here(dump)))
        left = [check for check in verification.checks if check.outcome == "unchecked"]
        following = text.more_checked(from_here(dump), left)
        if following and verification.finding is None:
            say(f"next: {following}")
        if probed is None:
            message(f"dump: {from_here(dump)}")
    unchecked = arguments.strict and verification.coverage < 1
    return DIFFERS if verification.finding is not None or unchecked else code


def _show_absorbed(probed: ProgramRunDocument, verification: Verification) -> None:
    """Show the NaN that no result has, as a note if their launch is right."""
    for verdict, command in probed.judged.pairs:
        if isinstance(verdict, CrashVerdict):
            continue
        if ruling.is_no_fault(verdict, verification):
            message(f"note: {ruling.no_fault(verdict)}")
        elif verdict.absorbed:
            message(*verdict_lines(verdict, command))


def given_graphs(path: str | None) -> GivenGraphs | None:
    from rewriter.diagnosis.verification.given_graphs import GivenGraphs

    return GivenGraphs(Path(path)) if path else None


def register_operators(modules: Sequence[str]) -> None:
    """Import modules that register custom operators, which are evaluated in this process."""
    if not modules:
        return
    from rewriter.runtime.host import ProblemError, import_operators

    for name in modules:
        try:
            import_operators(name)
        except ProblemError as error:
            raise RewriterError(
                "bad-import",
                str(error),
                hint="Name a module, or a Python file, that registers the operators.",
            ) from error


def _show(verification: Verification, dump: str) -> None:
    def style(row: int, column: int, cell: str) -> str:
        return level_style("error") if cell == "DIFFERS" else ""

    checks = verification.checks
    if len(checks) > _ROWS:
        checks = tuple(check for check in checks if check.outcome == "differs")[:_ROWS]
    if checks:
        say(*table(text.rows(checks), style))
    if len(checks) < len(verification.checks):
        every = counted(len(verification.checks), "launch")
        say(f"the table has those that differ, {len(checks)} of {every}; --json has all")
    say(text.coverage(verification))
    if verification.reasons:
        say(*text.reasons(verification))
    if lines := text.describe(verification, dump):
        first, *rest = lines
        say([(first, level_style("error"))], *rest)
