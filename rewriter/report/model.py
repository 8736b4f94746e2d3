"""Makes a report of a dump: every step with its values, in the words of `types`."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from rewriter.core.errors import RewriterError
from rewriter.core.text import some
from rewriter.core.types import TrendStatistic
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.findings import Diagnosis, Finding
from rewriter.diagnosis.next_commands import ALONE, alone, is_saved
from rewriter.diagnosis.nonfinite_origin import (
    Origin,
    infinite_origins_of,
    origins_of,
    skipped_note,
)
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.dump import launched
from rewriter.dump.allowed import Allowed
from rewriter.dump.document_files import MANIFEST
from rewriter.dump.documents import Manifest
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import ErrorRow, EventRow, NonFinite, TensorRow
from rewriter.dump.uninitialised import defined_rows
from rewriter.execution.conclusion import read_conclusion
from rewriter.execution.dumped_wrappers import flow_of
from rewriter.report import findings, overview, trends, verdicts
from rewriter.report.findings import sentence
from rewriter.report.flow import places
from rewriter.report.histogram import histogram, tiles
from rewriter.report.sources import of_dump
from rewriter.report.types import (
    Bins,
    NextCommand,
    Report,
    ReportedFinding,
    ReportedLaunch,
    ReportedRun,
    ReportedValue,
    Sources,
)

_NAMED = 8  # names in a fact
_TILED = 4  # launches of a run that have heat maps


def named(dump: Dump, names: Sequence[str]) -> list[RunDump]:
    """The runs of a dump that are named, or all. Raises `RewriterError` where there is none."""
    known = {run.name: run for run in dump.runs}
    if unknown := [name for name in names if name not in known]:
        raise RewriterError(
            "no-such-run",
            f"{dump.path} has no run {unknown[0]}",
            hint=f"Its runs: {some(list(known), _NAMED)}.",
        )
    return [known[name] for name in (names or known)]


def report(
    dump: Dump,
    *,
    runs: Sequence[str] = (),
    sources: Sources | None = None,
    tensors: bool = True,
    trend: TrendStatistic | None = trends.DEFAULT,
    diagnosis: Diagnosis | None = None,
) -> Report:
    """The report of a dump, or of those of its runs that are named, such as `rank0/run3`.

    `sources` gives the kernels' sources of a run, if not the copies of wrappers in the dump, and
    `trend` is what is shown over calls. With `tensors`, those that were saved have histograms, and
    heat maps where a finding is about their launch, and are searched for NaN. Launches that a
    `diagnosis` names are findings, too. Raises `RewriterError` where a name is no run's.
    """
    sources = sources or of_dump()
    asked = named(dump, runs)
    over_calls = None if trend is None else trends.trends(asked, trend)
    called, calls = (asked, ()) if runs else overview.choose(asked)
    searched = nonfinite.search(dump, values=tensors, among=called)
    chosen = tuple(
        _without_skipped(
            _read_run(run, sources(run), diagnosis.findings if diagnosis else (), tensors=tensors),
            searched.skipped,
        )
        for run in called
    )
    merged = findings.merged([run.findings for run in chosen])
    if calls:
        merged = (*merged, ReportedFinding("sampled", "note", overview.said(calls, len(called))))
    judged = verdicts.of_dump(dump, called, merged, searched.verdicts)
    crash = next((verdict for verdict, _ in judged if isinstance(verdict, CrashVerdict)), None)
    conclusion = read_conclusion(dump.home)
    if crash is not None and not (conclusion or crash.ended.running):
        crash = None  # how it ended is not known: what the record says is more
    text = sentence(crash.headline) if crash else findings.verdict(merged, chosen, calls)
    is_whole = not runs and (dump.path / MANIFEST).is_file()
    if is_whole and not crash and conclusion and verdicts.has_failed(dump, conclusion):
        ended = f"no launch was recorded as running when the program ended: {conclusion.ended}"
        text = f"{sentence(ended)} {text}"
    if diagnosis is not None:
        text = sentence(diagnosis.headline)
    told = ((x, verdict.wants[1]) for verdict, x in judged if x)
    following = next((NextCommand(x, f"for {why}" if why else "") for x, why in told), None)
    if diagnosis is not None and diagnosis.next:
        following = NextCommand(diagnosis.next)
    if following is None:
        following = _following(dump, chosen, next(iter(merged), None))
    return Report(
        title=_title(dump),
        path=str(dump.path),
        verdict=f"{text} {dump.caveat}".rstrip(),
        facts=facts(dump.manifest, asked, is_whole=is_whole),
        findings=merged,
        runs=chosen,
        verdicts=judged,
        calls=calls,
        trends=over_calls,
        next=following,
    )


def _without_skipped(run: ReportedRun, skipped: frozenset[str]) -> ReportedRun:
    """With a note in the place of findings about gradients that no weight has taken."""
    if run.name not in skipped:
        return run
    note = ReportedFinding(
        "skipped", "note", sentence(skipped_note(frozenset([run.name]))), run.name
    )
    left = (x for x in run.findings if x.kind not in findings.NON_FINITE)
    return replace(run, findings=(*left, note))


def _following(
    dump: Dump, runs: Sequence[ReportedRun], first: ReportedFinding | None
) -> NextCommand | None:
    """The launch of the first fault as a script, if its values were saved; without a fault, how to
    check values that are finite, which a dump says nothing about."""
    if first is not None and first.severity == "finding":
        launch = first.launch
        if launch is None or not (launch.is_launch and is_saved(x.row for x in launch.read)):
            return None
        return NextCommand(alone(dump.path, first.run, launch.label), ALONE)
    why = "to check finite values, which nothing here does"
    steps = [x for run in runs for x in run.launches if x.is_launch]
    if any(x.tensor is not None and x.tensor.file for step in steps for x in step.read):
        return NextCommand(f"rewriter verify {shlex.quote(str(dump.path))}", why)
    _, separator, program = (dump.manifest.command or "").partition(" -- ")
    return NextCommand(f"rewriter diagnose -- {program}", why) if steps and separator else None


def _title(dump: Dump) -> str:
    """The program that was recorded, or else the name of the dump."""
    _, _, program = (dump.manifest.command or "").partition(" -- ")
    return textwrap.shorten(program, 80, placeholder=" …") or dump.path.absolute().name


def _read_run(
    dumped: RunDump,
    sources: Mapping[str, str],
    diagnosed: Sequence[Finding] = (),
    *,
    tensors: bool,
) -> ReportedRun:
    """A run with its findings, and those that were `diagnosed`. `sources` are those of the
    wrapper's kernels, by name.

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    flow = flow_of(dumped)
    allowed = Allowed(dumped.manifest.allow)
    origins = tuple(origins_of(dumped, allowed))
    nodes = flow.nodes[: len(dumped.steps)]
    launches = [
        replace(
            _launch(dumped, node.step, defined_rows(flow, node), sources, tensors=tensors),
            **place._asdict(),
        )
        for node, place in zip(nodes, places(dumped, nodes), strict=True)
    ]
    if launches and _is_unfinished(dumped, launches[-1]):
        launches[-1] = replace(launches[-1], unfinished=True)
    run = ReportedRun(
        name=dumped.name,
        artifact=dumped.artifact,
        names=dumped.names,
        call=dumped.call,
        started=_moment(dumped.started),
        launches=tuple(launches),
        findings=(
            *_reported(dumped, launches),
            *findings.of_diagnosis(dumped.name, launches, diagnosed),
            *findings.of_run(
                dumped.name,
                launches,
                cut=dumped.cut,
                overflow=_overflow(origins, launches),
                absorbed=tuple(_absorbed(dumped, allowed, origins)),
                allowed=allowed,
            ),
        ),
    )
    return _tiled(dumped, run) if tensors else run


def _tiled(dumped: RunDump, run: ReportedRun) -> ReportedRun:
    """With heat maps of what the launches read and wrote that findings are about."""
    faults = [x.launch for x in run.findings if x.severity == "finding" and x.launch is not None]
    found = {launch.position for launch in faults[:_TILED] if launch.is_launch}
    if not found:
        return run

    def tiled(value: ReportedValue) -> ReportedValue:
        row = value.tensor
        return replace(value, tiles=tiles(dumped.path, row)) if row and row.file else value

    launches = (
        replace(x, values=tuple(map(tiled, x.values))) if x.position in found else x
        for x in run.launches
    )
    return replace(run, launches=tuple(launches))


def _absorbed(dumped: RunDump, allowed: Allowed, origins: Sequence[Origin]) -> Iterator[NonFinite]:
    """What no result of the call has, though a launch may have made some."""
    if origins and all(origin.absorbed and origin.state != "read" for origin in origins):
        yield "nan"
    if not any(True for _ in infinite_origins_of(dumped, allowed)):
        yield "inf"


def _overflow(
    origins: Sequence[Origin], launches: Sequence[ReportedLaunch]
) -> tuple[ReportedLaunch, ReportedLaunch] | None:
    """The launch whose infinities became the first NaN, and the one that made it of them."""
    if not origins or (maker := origins[0].overflow) is None:
        return None
    return launches[maker.step.position], launches[origins[0].node.step.position]


def _reported(dumped: RunDump, launches: Sequence[ReportedLaunch]) -> Iterator[ReportedFinding]:
    """What probes found out themselves: a fault of the device, inputs that do not fit."""
    if (row := next(dumped.having("error", ErrorRow), None)) is not None:
        launch = next((x for x in launches if _which(x) == row.which), None)
        when = "right after" if row.phase == "after" else "before"
        text = f"The device was found faulty {when} {launch or 'the first launch'}: {row.error}."
        yield ReportedFinding("fault", "finding", text, dumped.name, launch)
    wrong = [f"{row.name}: {row.unexpected}" for row in dumped.unexpected()]
    if wrong:
        inputs = next((x for x in launches if not x.is_launch), None)
        text = f"Inputs are not what it was compiled for: {'; '.join(wrong)}."
        yield ReportedFinding("unexpected", "finding", text, dumped.name, inputs)


def _which(launch: ReportedLaunch) -> tuple[int | None, int]:
    return launch.place.launch, launch.place.iteration


def _is_unfinished(dumped: RunDump, last: ReportedLaunch) -> bool:
    """Whether the record ends before all that a launch writes was read after it.

    Values are recorded in the order of the table: what is missing in between could not be read,
    what is missing at the end was never reached.
    """
    if not last.is_launch:
        return False
    labels = dumped.launch_row(last.place.launch).after or ()
    expected = [(role, name) for role, name, *_ in labels]
    recorded = {value.row.arg for value in last.values if value.row.phase == "after"}
    if not recorded:
        return bool(expected)
    # A list has a row for each of its members: `buf3[0]`.
    recorded |= {name.partition("[")[0] for name in recorded}
    reached = [at for at, (_, name) in enumerate(expected) if name in recorded]
    return any(role != "in" for role, _ in expected[max(reached, default=len(expected)) + 1 :])


def _launch(
    dumped: RunDump,
    step: RunStep,
    rows: Sequence[EventRow],
    sources: Mapping[str, str],
    *,
    tensors: bool,
) -> ReportedLaunch:
    """A step of a run with everything that was recorded of it."""
    facts = dumped.launch_row(step.launch)
    expressions = {
        (phase, label[1]): label[2]
        for phase, labels in (
            ("before", facts.before or facts.reads),
            ("after", facts.after),
        )
        for label in labels or ()
        if len(label) > 2
    }
    values = []
    for row in launched.values(rows):
        drawn: Bins | str | None = None
        if tensors and isinstance(row, TensorRow) and row.file and _is_drawn(row):
            drawn = histogram(dumped.path, row)
        bins, note = (None, drawn) if isinstance(drawn, str) else (drawn, "")
        expr = expressions.get((row.phase, row.arg), "")
        name = dumped.names.called(row.arg)
        values.append(ReportedValue(row, expr, bins=bins, note=note, in_model=name))
    return ReportedLaunch(
        position=step.position,
        place=launched.recorded(dumped, step),
        values=tuple(values),
        source=sources.get(step.kernel, ""),
        computes=step.launch is not None and launched.computes(rows),
    )


def _is_drawn(row: TensorRow) -> bool:
    """What a launch only reads was written by an earlier one, or is an input: drawn there."""
    return row.phase == "inputs" or row.role != "in"


def _hosts(runs: Iterable[RunDump]) -> str:
    """The machines that it ran on, where they are several."""
    hosts = list(dict.fromkeys(run.facts.host for run in runs if run.facts.host))
    return some(hosts, _NAMED) if len(hosts) > 1 else ""


def _ranks(size: int, runs: Iterable[RunDump]) -> str:
    """How many of the processes of a job left a record, and which did not."""
    there = {run.rank for run in runs}
    missing = [str(rank) for rank in range(size) if rank not in there]
    if size < 2:
        return ""
    return f"{len(there)} of {size}" + (
        f"; no record of {some(missing, _NAMED)}" if missing else ""
    )


def facts(
    manifest: Manifest, runs: Sequence[RunDump], *, is_whole: bool = False
) -> tuple[tuple[str, str], ...]:
    """What the manifest says, in the order in which a reader wants it.

    Of the wrappers those that were called: the first process to write the manifest knew one.
    """
    called = list(dict.fromkeys((run.artifact, run.sha256) for run in runs if run.artifact))
    artifacts, hashes = [manifest.artifact or ""], [manifest.sha256 or ""]
    if called and [artifact for artifact, _ in called] != artifacts:
        artifacts = [artifact for artifact, _ in called]
        hashes = [sha for _, sha in called] if all(sha for _, sha in called) else []
    pairs = (
        ("Artifact", some(artifacts, _NAMED)),
        ("Its sha256", some(hashes, _NAMED)),
        ("torch", manifest.torch or ""),
        ("Device", manifest.device or ""),
        ("Hosts", _hosts(runs)),
        ("Ranks", _ranks(manifest.ranks or 0, runs) if is_whole else ""),
        ("Probes", some(manifest.probes or (), _NAMED)),
        ("Written because of", manifest.trigger),
        ("inductor-rewriter", manifest.rewriter or ""),
        ("Command", manifest.command or ""),
    )
    return tuple((name, text) for name, text in pairs if text)


def _moment(seconds: float | None) -> str:
    moment = None if seconds is None else datetime.fromtimestamp(seconds, tz=timezone.utc)
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")
