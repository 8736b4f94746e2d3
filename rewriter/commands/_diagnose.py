"""`rewriter diagnose`: makes the runs that are needed, has them examined, and prints the result."""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from rewriter.artifact.types import Artifact
from rewriter.commands import _by_text, _diagnosis_text, _program
from rewriter.commands._diagnose_examined import EAGER, Right, examined
from rewriter.commands._diagnose_heap import watch
from rewriter.commands._documents.diagnose import DiagnoseDocument
from rewriter.commands._options import only_artifact, options_given, refuse_options
from rewriter.commands._output import from_here, write_page
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
from rewriter.commands._selection import environment_kernels, nothing_recorded
from rewriter.commands._verify import given_graphs, refuse_run_options
from rewriter.commands.diagnose import Arguments
from rewriter.core import files, json_text
from rewriter.core.documents import as_json
from rewriter.core.errors import INTERRUPTED, RewriterError
from rewriter.core.terminal import message
from rewriter.diagnosis import heap, next_commands, ruling, values_needed
from rewriter.diagnosis.expected import load_expected
from rewriter.diagnosis.fill_patterns import VARIABLE
from rewriter.diagnosis.findings import Diagnosis, DiagnosisStep
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verification.text import more_checked
from rewriter.dump.reading import is_dump, label, open_dump
from rewriter.execution import program
from rewriter.execution.hook.startup.sitecustomize import EAGER as EAGER_CALLS
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Selection

_MOST = 3  # runs, unless values do not fit into one
_COMPARED = 3  # calls of each compiled function that are compared with plain Python
_PIECES = 8  # runs if values do not fit into one
_RECORD_ALL = "rewriter run … --probe names,print,save --args all --when both"


def act(arguments: Arguments) -> int:
    if arguments.program is not None:
        return _act_program(arguments, arguments.program)
    return _act_artifact(arguments, only_artifact(arguments, "diagnose"))


def _act_artifact(arguments: Arguments, path: str) -> int:
    if is_dump(path):
        refuse_run_options(arguments)
        why = "a dump is diagnosed by its values"
        refuse_options(arguments, "text", why, "Drop it, or name the wrapper itself.")
        return _act_dump(arguments, Path(path))
    artifact = open_named(arguments, path, kernels=True)
    if _by_text.is_text_only(arguments, artifact, _needs_a_run(arguments)):
        return _by_text.act(arguments, artifact, "diagnosis")
    require_plain(artifact)
    right = _right(arguments)
    named = right.named
    reference = None if named is None else open_named(arguments, named)
    with _folder(arguments, artifact.path) as folder:
        runs = Runs(ArtifactSubject(arguments, path, artifact), folder, _MOST)
        everything = _values(arguments, folder)
        why = "does it end, are its numbers finite, and what does each launch do"
        try:
            first = runs.run("values", everything, why)
        except RewriterError as error:
            if _needs_a_run(arguments):
                raise
            return _by_text.instead(arguments, artifact, error, folder, "diagnosis")
        pieces = [first, *_further(runs, first, everything)]
        if named is not None and reference is not None and first.ended.code == 0:
            runs = replace(runs, subject=ArtifactSubject(arguments, named, reference))
            ran = runs.run("reference", everything, f"what {named} does, which is right")
            right = replace(right, dump=ran.dump)
        return _conclude(arguments, runs, pieces, everything, right, artifact)


def _needs_a_run(arguments: Arguments) -> list[str]:
    """The options that were given and need a run."""
    return options_given(arguments, "expected", "against", "bundle")


@contextmanager
def _folder(arguments: Arguments, path: Path) -> Iterator[Path]:
    """The directory for the dumps of what is at `path`. A request that is refused leaves nothing,
    but only a run shows that the outputs which are expected are those of no call. After another
    error, what was recorded stays."""
    folder = runs_directory(arguments, path, ".diagnosis")
    try:
        yield folder
    except RewriterError as error:
        if error.slug == "bad-expected":
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _act_program(arguments: Arguments, command: Sequence[str]) -> int:
    _program.refuse_options_of_artifacts(arguments, "")
    program.require(command)
    right = _right(arguments)
    _require_dump(right, "a program", "-- COMMAND")
    health = select(
        "names,print,inputs",
        kernels=arguments.kernels or environment_kernels(),
        calls=arguments.calls,
    )
    with _folder(arguments, Path("cache")) as folder:
        runs = Runs(ProgramSubject(arguments, command), folder, _MOST)
        first = runs.run("health", health, "does it end, and are the numbers finite")
        if first.dump is None or not first.ran_through:
            return _conclude(arguments, runs, [first], health, right)
        verdicts = first.nonfinite
        calls = values_needed.calls(first.dump, values_limit(folder), verdicts)
        everything = _values(arguments, folder, calls=calls)
        why = "which launch makes wrong numbers: all values of these calls, to check each launch"
        if verdicts:
            # What is known is said now: the checks may take minutes.
            known = verdicts[0].label if verdicts[0].absorbed else verdicts[0].headline
            why = f"{known}; does each launch compute what it should?"
        environment = {}
        if arguments.against == EAGER:
            why += "; and its compiled functions as plain Python, too"
            environment = {EAGER_CALLS: str(_COMPARED)}
        with _checks_imported_meanwhile():
            second = runs.run("values", everything, why, How(environment=environment))
        further = [second, *_further(runs, second, everything)]
        pieces = [replace(run, known_before=not arguments.calls) for run in further]
        return _conclude(arguments, runs, [first, *pieces], everything, right)


@contextmanager
def _checks_imported_meanwhile() -> Iterator[None]:
    """Import what checks launches, with torch, while the program runs: it takes as long as the
    program's own import."""

    def load() -> None:
        with suppress(ImportError):  # said where it is needed
            import_module("rewriter.diagnosis.verification.verify")

    thread = threading.Thread(target=load, name="imports")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _further(runs: Runs, ran: ProbedRun, selection: Selection) -> Iterator[ProbedRun]:
    """Further runs, for the values of launches that did not fit into --max-bytes."""
    for number in range(2, _PIECES + 1):
        left = None if ran.dump is None else values_needed.unsaved(ran.dump)
        chosen = selection.launches[0].start if selection.launches else -1
        if left is None or left.start == chosen or not ran.ran_through:
            return  # nothing is left, or one launch alone is too large
        selection = replace(selection, launches=(left,))
        why = f"the values of launches #{left.start} to #{left.stop - 1}, which did not fit"
        ran = runs.run(f"values-{number}", selection, why)
        yield ran


def _act_dump(arguments: Arguments, dump: Path) -> int:
    opened = open_dump(dump)
    dump = opened.path
    if not any(run.saves for run in opened.runs):
        raise RewriterError(
            "nothing-saved",
            f"{dump} holds no values of launches",
            hint=f"Record them: `{_RECORD_ALL}`.",
        )
    from rewriter.core.exit_status import ExitStatus
    from rewriter.execution.conclusion import read_conclusion

    known = read_conclusion(dump)
    ended = known.ended if known is not None else ExitStatus(0)
    again = known.again if known is not None else ""
    random = opened.manifest.inputs == "random"
    ran = ProbedRun(ended, dump, known is not None and known.blocking, random, 0.0, again)
    right = _right(arguments)
    _require_dump(right, "a dump", "…")
    watched = watch(ran.crashes, dump)
    found = examined(arguments, ran, [ran], select("save"), right, watched=watched)
    return _report(arguments, found, (), dump, [dump])


def _require_dump(right: Right, of: str, command: str) -> None:
    if right.named is not None:
        raise RewriterError(
            "no-reference",
            f"--against {right.named} is no dump, and {of} is compared with a dump",
            hint=f"Record the correct run: rewriter run --probe save -d right.dump {command}",
        )


def _right(arguments: Arguments) -> Right:
    """Read the correct results that the options name, before anything is run."""
    for output in filter(None, (arguments.output, arguments.bundle)):
        files.require_free(Path(output), overwrite=arguments.overwrite)
    if arguments.bundle is None:
        why = "without --bundle there is no archive to put them into"
        refuse_options(arguments, "weights", why)
    given_graphs(arguments.graph)
    named = None if arguments.against == EAGER else arguments.against
    dump = None
    if named is not None and is_dump(named):
        dump, named = Path(named), None
    if arguments.expected is None:
        return Right(dump=dump, named=named)
    path = Path(arguments.expected)
    files.require_file(path, hint="Make it with torch.save([output, …], FILE).")
    return Right(path, load_expected(path), dump, named)


def _values(arguments: Arguments, folder: Path, *, calls: str = "") -> Selection:
    return select(
        "names,print,save,hash,inputs",
        kernels=arguments.kernels or environment_kernels(),
        calls=arguments.calls or calls,
        max_bytes=arguments.max_bytes or str(values_limit(folder)),
        args="all",
        when="both",
    )


def _conclude(
    arguments: Arguments,
    runs: Runs,
    done: Sequence[ProbedRun],
    selection: Selection,
    right: Right,
    artifact: Artifact | None = None,
) -> int:
    """Make the remaining runs, and report on all of them.

    If a run failed, the first one that did decides: a program with a damaged heap, for one, may
    fail in one run and not in another.
    """
    failed = (run for run in done if run.ended.code != 0)
    first = next((run for run in done if not run.ran_through), next(failed, done[0]))
    pieces = [run for run in done if run.dump is not None and run.has_values]
    if first.ended.interrupted:
        return INTERRUPTED
    if first.dump is None and first.ended.code == 0:
        raise nothing_recorded(arguments)
    if any(verdict.asynchronous for verdict in first.crashes):
        waiting = select("names,sync,inputs", kernels=selection.kernels)
        why = "which launch the device faults in: each is waited for"
        waited = runs.run("crash", waiting, why, How(blocking=True))
        if waited.ended.code != 0:
            first = waited
    guarded: ProbedRun | None = None
    watched: Sequence[heap.Watched] = ()
    if first.ended.signal and first.dump is not None:
        watched = watch(first.crashes, first.dump, runs.folder)
        if not (any(launch.found for launch in watched) or first.ended.check):
            guarded = _guarded(arguments, runs, first)
    found = examined(arguments, first, pieces, selection, right, artifact, guarded, watched)
    dumps = [piece.dump for piece in pieces or [first] if piece.dump is not None]
    ran = [len(open_dump(run.dump).runs) for run in done if run.dump is not None]
    calls = (len(open_dump(dumps[0]).runs), max(ran)) if pieces else (0, 0)
    asked = ""
    if arguments.program and first.ran_through and first.ended.code != 0:
        asked = f"rewriter bisect -- {shlex.join(arguments.program)}"
    return _report(arguments, found, runs.done, runs.folder, dumps, calls, asked)


def _guarded(arguments: Arguments, runs: Runs, crashed: ProbedRun) -> ProbedRun:
    """A run with guard bands: a launch that stores outside of its buffers may damage the heap, so
    that the program crashes somewhere else."""
    selection = select("bounds", calls=arguments.calls)
    why = "does a launch store outside of its buffers, so that the program dies later"
    limit = PATIENCE + LONGER * crashed.seconds
    # Bands of finite numbers: a kernel that reads a NaN there may store it again, which goes
    # unnoticed.
    return runs.run("bounds", selection, why, How(environment={VARIABLE: "1"}, timeout=limit))


def _report(
    arguments: Arguments,
    found: Iterator[Examined],
    steps: Sequence[DiagnosisStep],
    folder: Path,
    dumps: Sequence[Path],
    calls: tuple[int, int] = (0, 0),
    asked: str = "",
) -> int:
    """`asked`: the command that asks the program's own check, if that failed."""
    order = [run.name for run in open_dump(dumps[0]).runs] if dumps else []
    diagnosis = replace(ruling.rule(found, order=order, steps=steps), calls=calls)
    following = _next(diagnosis, dumps)
    if asked and diagnosis.finding is not None and diagnosis.finding.kind == "crash":
        following = asked
    if not following and not diagnosis.findings and dumps:
        following = more_checked(from_here(dumps[0]), diagnosis.suspects)
        if not following and diagnosis.checked < diagnosis.launches:
            is_half = values_needed.lacks_inputs(dumps[0])
            following = f"{_RECORD_ALL}  # what launches read is not recorded" * is_half
    diagnosis = replace(diagnosis, next=following)
    if arguments.output is not None and dumps:
        from rewriter.report import model, page

        shown = model.report(open_dump(dumps[0]), diagnosis=diagnosis)
        text = page.page(shown, command=arguments.command_line)
        write_page(text, Path(arguments.output), overwrite=arguments.overwrite)
    document = DiagnoseDocument(directory=str(folder), diagnosis=diagnosis)
    if arguments.bundle is not None:
        _write_bundle(arguments, arguments.bundle, diagnosis, document, dumps)
    return _diagnosis_text.conclude(arguments, diagnosis, document, folder, kept=bool(steps))


def _next(diagnosis: Diagnosis, dumps: Sequence[Path]) -> str:
    """The command that makes a script of the launch that makes wrong values."""
    finding, dump = diagnosis.finding, _saved(diagnosis, dumps)
    if finding is None or dump is None or finding.kind not in ("wrong", "differs", "nan"):
        return ""
    launch = label(finding.launch or 0, finding.iteration)
    return next_commands.alone(from_here(dump), finding.run, launch)


def _saved(diagnosis: Diagnosis, dumps: Sequence[Path]) -> Path | None:
    """The dump that has all values of the launch of the first finding."""
    finding = diagnosis.finding
    if finding is None or finding.launch is None:
        return None
    which = (finding.run, finding.launch, finding.iteration)
    return next((dump for dump in dumps if values_needed.is_saved(dump, *which)), None)


def _write_bundle(
    arguments: Arguments,
    path: str,
    diagnosis: Diagnosis,
    document: DiagnoseDocument,
    dumps: Sequence[Path],
) -> None:
    from rewriter.reproduction.anonymous import Anonymous
    from rewriter.reproduction.bundle import bundle

    dump = _saved(diagnosis, dumps) or next(iter(dumps), None)
    page = _diagnosis_text.page(replace(diagnosis, next=""))
    text = json_text.encode(as_json(document), indent=1)
    clean = Anonymous.here()
    made = bundle(diagnosis, page, text, dump, weights=arguments.weights, clean=clean)
    files.write(Path(path), made.archive(), overwrite=arguments.overwrite)
    message(f"bundle: {path}; read its report.md before you publish it")
    for reason in made.missing:
        message(f"not in the bundle: {reason}")
