"""What `rewriter diagnose` does: the runs that are needed, what is looked into, and the page."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rewriter.artifact.types import Artifact
from rewriter.commands import _program
from rewriter.commands._diagnose_runs import ArtifactSubject, ProbedRun, ProgramSubject, Runs
from rewriter.commands._output import emit, from_here, progress_bar
from rewriter.commands._run import open_named
from rewriter.commands._selection import environment_kernels, refuse_idle
from rewriter.commands._verify import is_dump, register_operators
from rewriter.core import json_text
from rewriter.core.documents import as_json
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import level_style, message, say
from rewriter.diagnosis import diagnosis_text, ruling, values_needed
from rewriter.diagnosis.corruption import examine_corruption
from rewriter.diagnosis.evidence import evidence_of
from rewriter.diagnosis.findings import Diagnosis, DiagnosisStep
from rewriter.diagnosis.lifetimes import examine_lifetimes
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.unlaunched import examine_kernels
from rewriter.dump import dataflow
from rewriter.dump.directory import DIAGNOSIS, dump_directory
from rewriter.dump.reading import open_dump
from rewriter.execution import program
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.instrumentation.editable import already_instrumented
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Selection
from rewriter.verification.types import Verification

_MOST = 3  # runs, unless values do not fit into one
_PIECES = 8  # runs for values that do not
_SHOWN = 3  # findings with all that the launch was given
_LEAST, _USUAL = 256 << 20, 4 << 30  # bytes of values

Key = tuple[str, int, int]  # a launch of a run: the run, the launch, which time it ran


def act_artifact(arguments: argparse.Namespace, path: str) -> int:
    """Diagnose a wrapper, a package, or a dump that has been recorded."""
    if is_dump(Path(path)):
        given = {
            "--args": arguments.args,
            "--dump": arguments.dump,
            "--wrapper": arguments.wrappers,
        }
        refuse_idle(given, "nothing is run: the dump has it all", "Drop the option.")
        return _act_dump(arguments, Path(path))
    _program.refuse_options_of_programs(arguments)
    artifact = open_named(arguments, path)
    if artifact.only.probes is not None:
        hint = "Name the plain file, or `rewriter strip` it first."
        raise already_instrumented(artifact.only, hint)
    folder = _folder(arguments, artifact.path)
    runs = Runs(ArtifactSubject(arguments, path, artifact), folder, _MOST)
    everything = _values(arguments, folder)
    first = runs.run(
        "values", everything, "does it end, are its numbers finite, and what does each launch do"
    )
    return _conclude(arguments, runs, first, first, everything, artifact)


def act_program(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """Diagnose a program, through the wrappers of its cache."""
    _program.refuse_options_of_artifacts(arguments)
    program.require(command)
    folder = _folder(arguments, Path("cache"))
    runs = Runs(ProgramSubject(arguments, command), folder, _MOST)
    health = select(
        "names,print,inputs",
        kernels=arguments.kernels or environment_kernels(),
        calls=arguments.calls,
    )
    first = runs.run("health", health, "does it end, and are the numbers finite")
    if first.dump is None:
        if first.ended.code == 0:
            raise _nothing()
        return _conclude(arguments, runs, first, None, health)
    if first.ended.code != 0:
        return _conclude(arguments, runs, first, None, health)
    everything = _values(arguments, folder, calls=values_needed.calls(first.dump, _limit(folder)))
    verdicts = first.nonfinite
    why = "which launch makes wrong numbers: all values of these calls, to check each launch"
    if verdicts:
        why = f"{verdicts[0].label} makes NaN: does it compute what it should?"
    second = runs.run("values", everything, why)
    return _conclude(arguments, runs, first, second, everything)


def _act_dump(arguments: argparse.Namespace, dump: Path) -> int:
    opened = open_dump(dump)
    if not any(run.saves for run in opened.runs):
        raise RewriterError(
            "nothing-saved",
            f"{dump} holds no values of launches",
            hint="Record them: `rewriter run … --probe names,print,save --args all --when both`.",
        )
    from rewriter.core.exit_status import ExitStatus
    from rewriter.diagnosis.conclusion import read_conclusion

    known = read_conclusion(dump)
    ended = known.ended if known is not None else ExitStatus(0)
    again = known.again if known is not None else ""
    random = opened.manifest.inputs == "random"
    ran = ProbedRun(ended, dump, known is not None and known.blocking, random, 0.0, again)
    return _report(arguments, _examined(arguments, ran, ran, select("save")), (), dump)


def _folder(arguments: argparse.Namespace, path: Path) -> Path:
    wanted = arguments.dump
    if wanted is None:
        return dump_directory(path, None, overwrite=False, suffix=".diagnosis")
    return dump_directory(path, wanted, overwrite=arguments.overwrite)


def _limit(folder: Path) -> int:
    """The bytes of values of one run."""
    free = shutil.disk_usage(folder).free
    return max(_LEAST, min(_USUAL, free // 2))


def _values(
    arguments: argparse.Namespace, folder: Path, *, calls: str = "", launches: range | None = None
) -> Selection:
    return select(
        "names,print,save,inputs",
        kernels=arguments.kernels or environment_kernels(),
        launches=None if launches is None else [launches],
        calls=arguments.calls or calls,
        max_bytes=arguments.max_bytes or str(_limit(folder)),
        args="all",
        when="both",
        recheck=True,
    )


def _nothing() -> RewriterError:
    return RewriterError(
        "nothing-saved",
        "no launch was recorded",
        hint="Nothing that was chosen ran: see the lines above, and --kernels and --calls.",
    )


def _conclude(
    arguments: argparse.Namespace,
    runs: Runs,
    first: ProbedRun,
    values: ProbedRun | None,
    selection: Selection,
    artifact: Artifact | None = None,
) -> int:
    """Run what else is needed, and print what came of all runs."""
    if first.ended.interrupted:
        return INTERRUPTED
    if first.dump is None and first.ended.code == 0:
        raise _nothing()
    if any(verdict.asynchronous for verdict in first.crashes):
        waiting = select("names,sync,inputs", kernels=selection.kernels)
        why = "which launch the device faults in: each is waited for"
        waited = runs.run("crash", waiting, why, blocking=True)
        if waited.ended.code != 0:
            first = waited
    examined = _examined(arguments, first, values, selection, artifact)
    return _report(arguments, examined, runs.done, runs.folder)


def _examined(
    arguments: argparse.Namespace,
    first: ProbedRun,
    values: ProbedRun | None,
    selection: Selection,
    artifact: Artifact | None = None,
) -> Iterator[Examined]:
    """All that is looked into."""
    crashes = first.crashes
    yield ruling.of_end(first.ended, crashes, first.following(crashes, selection))
    verification = None
    if values is not None and values.dump is not None and open_dump(values.dump).runs:
        verification = _verify(arguments, values.dump)
    if first.dump is not None:
        verdicts = first.nonfinite
        yield ruling.of_nonfinite(
            verdicts,
            verification,
            launches=values_needed.launches(first.dump),
            is_random=first.is_random,
            following=first.following(verdicts, selection),
        )
    dump = first.dump if values is None or values.dump is None else values.dump
    yield from _structure(dump, artifact)
    if verification is not None and dump is not None:
        yield examine_corruption(open_dump(dump))
        ended = first.ended.code == 0  # of what was cut short, nothing is suspect but that
        yield ruling.of_verification(verification, _evidence(dump, verification), whole=ended)


def _structure(dump: Path | None, artifact: Artifact | None) -> Iterator[Examined]:
    """What the texts of the wrappers say, of those that were called, or else of the artifact's."""
    runs = {} if dump is None else {run.sha256: run for run in reversed(open_dump(dump).runs)}
    known = [(wrapper, run) for run in runs.values() if (wrapper := wrapper_of(run)) is not None]
    if not known and artifact is not None:
        for wrapper in artifact.wrappers:
            yield (lifetimes := examine_lifetimes(wrapper))
            yield examine_kernels(wrapper, readers=_readers(lifetimes))
    for wrapper, run in known:
        empty = {
            dataflow.variable(row.arg)
            for step in run.steps
            for row in dataflow.tensors(run.rows(step))
            if not row.size
        }
        lines = run.names.lines
        yield (lifetimes := examine_lifetimes(wrapper, run=run.name, empty=empty, lines=lines))
        yield examine_kernels(wrapper, run=run.name, readers=_readers(lifetimes))


def _readers(examined: Examined) -> tuple[int, ...]:
    return tuple(one.launch for one in examined.findings if one.launch is not None)


def _evidence(dump: Path, verification: Verification) -> Mapping[Key, tuple[str, ...]]:
    """What the first launches that differ were given, and what they left."""
    opened = open_dump(dump)
    runs = {run.name: run for run in opened.runs}
    differing = [one for one in verification.checks if one.outcome == "differs"]
    return {
        (one.run, one.launch, one.iteration): evidence_of(
            opened, runs[one.run], one.launch, one.iteration
        )
        for one in differing[:_SHOWN]
    }


def _verify(arguments: argparse.Namespace, dump: Path) -> Verification | None:
    from rewriter.verification.verify import verify

    if not any(run.saves for run in open_dump(dump).runs):
        return None
    register_operators(getattr(arguments, "imports", ()))
    message("checking each launch against what it claims to compute")
    with progress_bar() as bar:
        return verify(dump, progress=None if bar is None else lambda a, b: bar(a, b))


def _report(
    arguments: argparse.Namespace,
    examined: Iterator[Examined],
    steps: Sequence[DiagnosisStep],
    folder: Path,
) -> int:
    from rewriter.commands._documents.diagnose import diagnose_document

    diagnosis: Diagnosis = ruling.rule(examined, steps=steps)
    document = diagnose_document(str(folder), diagnosis)
    if steps:
        encoded = json_text.encode(as_json(document), indent=1)
        (folder / DIAGNOSIS).write_text(encoded + "\n", encoding="utf-8")
    if arguments.json:
        emit(document)
    else:
        _show(diagnosis)
        message(f"dumps: {from_here(folder)}")
    return DIFFERS if diagnosis.findings else OK


def _show(diagnosis: Diagnosis) -> None:
    first, *rest = diagnosis_text.page(diagnosis)
    style = level_style("error" if diagnosis.findings else "good")
    say([(first, style)], *rest)
