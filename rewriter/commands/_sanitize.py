"""What `rewriter sanitize` does: the runs that are needed, and the page.

Two runs differ in what uninitialised memory is filled with. Only where these find something are
there more: one that fills nothing, to see whether the outputs are the same, and two that save the
values of the launches that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.commands import _by_text, _diagnosis_text, _program
from rewriter.commands._documents.diagnose import SanitizeDocument
from rewriter.commands._options import only_artifact, options_given
from rewriter.commands._probed_runs import (
    LONGER,
    PATIENCE,
    ArtifactSubject,
    How,
    ProbedRun,
    ProgramSubject,
    Runs,
    runs_directory,
    values_limit,
)
from rewriter.commands._run import open_named, require_plain
from rewriter.commands._selection import check_guard_variable, nothing_recorded
from rewriter.commands.sanitize import Arguments
from rewriter.core.errors import INTERRUPTED, RewriterError
from rewriter.core.quantities import comma_separated, parse_bytes
from rewriter.core.types import ArgsMode
from rewriter.diagnosis import failing, fills, ruling, sanitized
from rewriter.diagnosis.corruption import changed_values, examine_corruption
from rewriter.diagnosis.fill_patterns import FILLINGS, GUARD_VARIABLE, OFF, VARIABLE
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.sanitized import CHECKS, Check
from rewriter.diagnosis.wrapper_text import examine_lifetimes, examine_races
from rewriter.dump import launched
from rewriter.dump.reading import Dump, open_dump
from rewriter.execution import program
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.instrumentation.select import check_bytes, select
from rewriter.instrumentation.types import Selection

_MOST = 2  # runs, unless they find something
_WIDEST = 99_999_999  # bytes of a band that `REWRITER_GUARD` may say


def act(arguments: Arguments) -> int:
    if arguments.program is not None:
        return _act_program(arguments, arguments.program)
    return _act_artifact(arguments, only_artifact(arguments, "sanitize"))


def _act_artifact(arguments: Arguments, path: str) -> int:
    checks = chosen(arguments.only)
    _check_guard(arguments.guard)
    artifact = open_named(arguments, path, kernels=True)
    if _by_text.is_text_only(arguments, artifact, options_given(arguments, "only")):
        return _by_text.act(arguments, artifact, "sanitize")
    require_plain(artifact)
    if checks == {"race"}:
        return _report(arguments, checks, _texts([(artifact.only, "")], checks))
    folder = runs_directory(arguments, artifact.path, ".sanitize")
    runs = Runs(ArtifactSubject(arguments, path, artifact), folder, _MOST)
    try:
        return _sanitize(arguments, checks, runs, [artifact.only])
    except RewriterError as error:
        if runs.done:
            raise
        return _by_text.instead(arguments, artifact, error, folder, "sanitize")


def _act_program(arguments: Arguments, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments)
    checks = chosen(arguments.only)
    _check_guard(arguments.guard)
    if checks == {"race"}:
        raise RewriterError(
            "bad-check",
            "--only race of a program: races are shown by the text of its wrappers",
            hint="Name a wrapper, or the cache: rewriter list CACHE --strict.",
        )
    program.require(command)
    folder = runs_directory(arguments, Path("cache"), ".sanitize")
    return _sanitize(arguments, checks, Runs(ProgramSubject(arguments, command), folder, _MOST))


def chosen(only: str) -> set[Check]:
    """The checks of `--only`."""
    wanted = comma_separated(only)
    for name in wanted:
        if name not in CHECKS:
            raise RewriterError(
                "bad-check",
                f"--only: {name!r} is no check",
                hint=f"Pass one or more of {', '.join(CHECKS)}.",
            )
    return {name for name in CHECKS if name in wanted} if wanted else set(CHECKS)


def _check_guard(text: str) -> None:
    """Refuse what the runtime would not use: it would guard with another size."""
    if not text:
        check_guard_variable()
    size = check_bytes(text, option="--guard")
    if size and parse_bytes(size) > _WIDEST:
        raise RewriterError(
            "bad-size",
            f"--guard {size!r} is wider than a band can be",
            hint=f"Each buffer gets two: pass at most {_WIDEST} bytes, such as 64K or 1M.",
        )


@dataclass
class _Session:
    """The checks of a command, the runs that fill memory, one for each filling, and what was found
    so far. `left` launches could not be compared with the other filling."""

    arguments: Arguments
    checks: set[Check]
    runs: Runs
    filled: list[ProbedRun] = field(default_factory=list)
    parts: list[Examined] = field(default_factory=list)
    left: int = 0

    @property
    def selection(self) -> Selection:
        """The probes of the runs that fill memory. The probe `names` is not among them: with it,
        fingerprints are not queued, which is slow."""
        names = [name for name in FILLINGS if name in self.checks]
        which: ArgsMode = "ends" if "corrupt" in self.checks else "written"
        return select([*names, "hash"], calls=self.arguments.calls, args=which)

    def run(
        self,
        name: str,
        selection: Selection,
        why: str,
        filling: str,
        *,
        timeout: float | None = None,
    ) -> ProbedRun:
        """Run once. The filling goes into the environment: a package that was built with the probes
        serves for each filling."""
        environment = {VARIABLE: filling}
        if self.arguments.guard:
            environment[GUARD_VARIABLE] = str(parse_bytes(self.arguments.guard))
        how = How(environment=environment, timeout=timeout)
        return self.runs.run(name, selection, why, how)

    @property
    def has_findings(self) -> bool:
        return any(part.findings for part in self.parts)

    @property
    def has_failed(self) -> bool:
        """Whether a run did not end well."""
        return any(run.ended.code != 0 for run in self.filled)

    @property
    def dumps(self) -> list[Path]:
        return [run.dump for run in self.filled if run.dump is not None]


def _sanitize(
    arguments: Arguments,
    checks: set[Check],
    runs: Runs,
    wrappers: Sequence[Wrapper] = (),
) -> int:
    session = _Session(arguments, checks, runs)
    for number, why in enumerate(_reasons(checks)):
        ran = session.run(f"filling-{number}", session.selection, why, str(number))
        if ran.ended.interrupted:
            return INTERRUPTED
        session.filled.append(ran)
        if ran.dump is None:
            break
    first = session.filled[0]
    if first.dump is None and first.ended.code == 0:
        raise nothing_recorded(arguments)
    opened = [open_dump(path) for path in session.dumps]
    called = {run.sha256: run for dump in opened for run in dump.runs}
    known = [(one, run.graph) for run in called.values() if (one := wrapper_of(run))]
    texts = known or [(wrapper, "") for wrapper in wrappers]
    session.parts += _texts(texts, checks, opened)
    if checks & set(FILLINGS):
        session.parts.append(sanitized.of_rows(opened, checks))
    if "corrupt" in checks and opened:
        session.parts.append(_corruption(session, opened[0]))
    if len(opened) == 2 and not session.has_failed:
        session.parts.append(_unwritten(session))
    if session.has_findings or session.has_failed:
        _run_without_filling(session)
    return _report(arguments, checks, session.parts, opened, runs, session.left)


def _reasons(checks: set[Check]) -> Iterator[str]:
    """Why each of the runs that fill memory is made."""
    watched = ", ".join(check for check in CHECKS if check in checks and check != "race")
    yield f"{watched}: uninitialised memory is filled"
    if checks & set(FILLINGS):
        yield "the same with another filling: launches that read such memory differ"


def _corruption(session: _Session, dump: Dump) -> Examined:
    """The values that changed between their writer and their last reader. A further run records
    these behind each launch, to tell which launch changed them."""
    changed = [value for value in changed_values(dump)[0] if value.is_open]
    if not changed:
        return examine_corruption(dump)
    calls = sorted({value.run.call_index or 0 for value in changed})
    selection = replace(
        session.selection,
        tensors=tuple(sorted({value.name for value in changed})),
        calls=",".join(map(str, calls)),
    )
    watched = session.run("watched", selection, "what changed, looked at behind each launch", "0")
    return examine_corruption(dump, None if watched.dump is None else open_dump(watched.dump))


def _unwritten(session: _Session) -> Examined:
    """The launches that read uninitialised memory. Where the two runs differ, two more save the
    values of the launches that do."""
    compared = fills.compare_fills(*session.dumps[:2])
    session.left = compared.left
    if not compared.differences:
        return sanitized.of_fills(compared, [])
    launches, calls = fills.launches_of(compared.differences)
    again = []
    for number in range(2):
        selection = replace(
            session.selection,
            launches=tuple(launches),
            calls=calls,
            max_bytes=str(values_limit(session.runs.folder)),
            args="all",
            when="both",
        )
        selection = replace(selection, probes=(*selection.probes, "save"))
        why = "the values of launches that differ" + ", with the other filling" * number
        ran = session.run(f"values-{number}", selection, why, str(number))
        if ran.dump is None:
            return sanitized.of_fills(compared, [])
        again.append(ran.dump)
    apart = [*fills.varying(compared.differences, session.dumps[0], again[0])]
    apart += fills.rounded(compared.differences, again[0], again[1])
    varying = [difference for difference in compared.differences if difference in apart]
    left = [difference for difference in compared.differences if difference not in varying]
    steady = fills.unsteady(varying, again[0], again[1])
    return sanitized.of_fills(compared, fills.judge(left, again[0], again[1]), varying, steady)


def _run_without_filling(session: _Session) -> None:
    """Run once without filling memory: does the program fail as it is, and are its outputs the
    same, so that nobody would have noticed?"""
    # With the same probes, so that nothing is compiled again.
    why = "without filling: do the outputs stay the same"
    # Without bands, what is stored out of bounds damages the program itself, which may never end.
    limit = PATIENCE + LONGER * max(run.seconds for run in session.filled)
    plain = session.run("plain", session.selection, why, OFF, timeout=limit)
    session.parts.append(_failure(session, plain))
    if plain.dump is not None and session.has_findings and plain.ended.code == 0:
        session.parts.append(sanitized.of_outputs(plain.dump, session.dumps))


def _failure(session: _Session, plain: ProbedRun) -> Examined:
    """How the program fails. It runs once more, with the probe `names`, to tell in which launch,
    and what that is given."""
    ends = [run.ended for run in session.filled]
    failed = next((number for number, end in enumerate(ends) if end.code != 0), None)
    if failed is None:
        return failing.of_ends(ends, plain.ended)
    selection = replace(session.selection, args="all", when="both")
    selection = replace(selection, probes=("names", *selection.probes))
    ran = session.run("failing", selection, "where it fails", str(failed))
    crashes = ran.crashes or session.filled[failed].crashes
    given = failing.filled_arguments(ran.crashes[0], failed) if ran.crashes else {}
    return failing.of_ends(ends, plain.ended, crashes, given)


def _texts(
    wrappers: Sequence[tuple[Wrapper, str]], checks: set[Check], dumps: Sequence[Dump] = ()
) -> Iterator[Examined]:
    """What the texts of the wrappers show, each with that of its graph, if it is known."""
    empty = {name for dump in dumps for run in dump.runs for name in launched.empty_variables(run)}
    for wrapper, graph in wrappers:
        if "race" in checks:
            yield examine_races(wrapper)
        if checks & {"poison", "stale"}:
            yield examine_lifetimes(wrapper, empty=empty, graph=graph)


def _report(
    arguments: Arguments,
    checks: set[Check],
    parts: Iterable[Examined],
    dumps: Sequence[Dump] = (),
    runs: Runs | None = None,
    left: int = 0,
) -> int:
    """`left` launches could not be compared with the other filling."""
    order = [run.name for run in dumps[0].runs] if dumps else []
    coverage = sanitized.coverage(dumps[:1], checks)
    share = sanitized.share(dumps[:1], coverage, left)
    steps = () if runs is None else tuple(runs.done)
    diagnosis = ruling.rule([*parts, share], order=order, steps=steps)
    folder = None if runs is None else runs.folder
    document = SanitizeDocument(
        directory=str(folder or ""), diagnosis=diagnosis, coverage=tuple(coverage)
    )
    looked = [f"  {line}" for line in sanitized.coverage_lines(coverage)]
    also = ["looked at:", *looked] if looked else []
    return _diagnosis_text.conclude(
        arguments, diagnosis, document, folder, title="sanitize", also=also
    )
