"""Makes a report of a dump: every step with its values, in the words of `types`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from msgspec import UnsetType

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.conclusion import read_conclusion
from rewriter.diagnosis.nonfinite import Where, overflow_of
from rewriter.dump import dataflow
from rewriter.dump.documents import Manifest
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import EventRow, ScalarRow, Statistic, TensorRow, ValueRow, number
from rewriter.report import findings, verdicts
from rewriter.report.types import (
    Finding,
    Histogram,
    Number,
    Report,
    ReportedLaunch,
    ReportedRun,
    ReportedValue,
    Sources,
    ValueStatistics,
)
from rewriter.runtime.text import short_dtype


def report(
    dump: Dump,
    *,
    runs: Sequence[str] = (),
    sources: Sources | None = None,
    histogram: Histogram | None = None,
    where: Where | None = None,
) -> Report:
    """The report of a dump, or of those of its runs that are named, such as `rank0/run3`.

    `sources` gives the kernels' sources of a run. Raises `RewriterError` where a name is no run's.
    """
    known = {run.name: run for run in dump.runs}
    if unknown := [name for name in runs if name not in known]:
        raise RewriterError(
            "no-such-run",
            f"{dump.path} has no run {unknown[0]}",
            hint=f"Its runs: {_listed(known)}.",
        )
    called = [known[name] for name in (runs or known)]
    chosen = tuple(read_run(run, histogram, sources(run) if sources else {}) for run in called)
    merged = findings.merged([run.findings for run in chosen])
    judged = verdicts.of_dump(dump, called, merged, where)
    crash = next((one for one, _ in judged if one.ended is not None), None)
    if crash is not None and read_conclusion(dump.path) is None:
        crash = None  # nobody knows how it ended: what the record says is more
    text = sentence(crash.headline) if crash else findings.verdict(merged, chosen)
    return Report(
        title=dump.path.absolute().name,
        path=str(dump.path),
        verdict=f"{text} {dump.caveat}".rstrip(),
        facts=facts(dump.manifest, called),
        findings=merged,
        runs=chosen,
        verdicts=judged,
    )


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def read_run(
    dumped: RunDump, histogram: Histogram | None, sources: Mapping[str, str] | None = None
) -> ReportedRun:
    """A run with its findings. `histogram` is asked for the tensors that have a file; `sources` are
    those of the wrapper's kernels, by name.

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    steps = dumped.walk()
    launches = [launch(dumped, step, rows, histogram, sources or {}) for step, rows in steps]
    if launches and _is_unfinished(dumped, launches[-1]):
        launches[-1] = replace(launches[-1], unfinished=True)
    return ReportedRun(
        name=dumped.name,
        artifact=dumped.artifact,
        started=_moment(dumped.facts.started),
        launches=tuple(launches),
        findings=(
            *_reported(dumped, launches),
            *findings.of_run(
                dumped.name, launches, cut=dumped.cut, overflow=_overflow(dumped, launches)
            ),
        ),
    )


def _overflow(
    dumped: RunDump, launches: Sequence[ReportedLaunch]
) -> tuple[ReportedLaunch, ReportedLaunch] | None:
    """The launch whose infinities became the first NaN, and the one that made it of them."""
    origin = overflow_of(dumped)
    if origin is None or origin.overflow is None:
        return None
    return launches[origin.overflow.step.position], launches[origin.node.step.position]


def _reported(dumped: RunDump, launches: Sequence[ReportedLaunch]) -> Iterator[Finding]:
    """What probes found out themselves: a fault of the device, inputs that do not fit."""
    if (row := next(dumped.errors(), None)) is not None:
        launch = next((x for x in launches if (x.index, x.iteration) == row.which), None)
        when = "right after" if row.phase == "after" else "before"
        text = f"The device was found faulty {when} {launch or 'the first launch'}: {row.error}."
        yield Finding("fault", "finding", text, dumped.name, launch)
    wrong = [f"{row.name}: {row.unexpected}" for row in dumped.unexpected()]
    if wrong:
        inputs = next((x for x in launches if x.index is None), None)
        text = f"Inputs are not what it was compiled for: {'; '.join(wrong)}."
        yield Finding("unexpected", "finding", text, dumped.name, inputs)


def _is_unfinished(dumped: RunDump, last: ReportedLaunch) -> bool:
    """Whether the record ends before all that a launch writes was read after it.

    Values are recorded in the order of the table: what is missing in between could not be read,
    what is missing at the end was never reached.
    """
    if last.index is None:
        return False
    labels = dumped.launch_row(last.index).after or ()
    expected = [(role, name) for role, name, *_ in labels]
    recorded = {reading.name for reading in last.readings if reading.phase == "after"}
    if not recorded:
        return bool(expected)
    # A list has a row for each of its members: `buf3[0]`.
    recorded |= {name.partition("[")[0] for name in recorded}
    reached = [at for at, (_, name) in enumerate(expected) if name in recorded]
    return any(role != "in" for role, _ in expected[max(reached, default=len(expected)) + 1 :])


def launch(
    dumped: RunDump,
    step: RunStep,
    rows: Sequence[EventRow],
    histogram: Histogram | None,
    sources: Mapping[str, str],
) -> ReportedLaunch:
    """A step of a run with everything that was recorded of it."""
    facts = dumped.launch_row(step.launch)
    expressions = {
        (phase, label[1]): label[2]
        for phase, labels in (("before", facts.before), ("after", facts.after))
        for label in labels or ()
        if len(label) > 2
    }
    readings = []
    for row in dataflow.values(rows):
        made = reading(row, expressions.get((row.phase, row.arg), ""))
        if histogram is not None and made.file and _is_drawn(made):
            drawn = histogram(dumped.path, made)
            if isinstance(drawn, str):
                made = replace(made, note=drawn)
            else:
                made = replace(made, bins=drawn)
        readings.append(made)
    return ReportedLaunch(
        position=step.position,
        index=step.launch,
        iteration=step.iteration,
        kernel=step.kernel or "inputs of the call",
        kind=facts.kind,
        scope=facts.scope,
        line=facts.line,
        source_nodes=facts.source_nodes,
        origins=facts.origins,
        readings=tuple(readings),
        source=sources.get(step.kernel, ""),
        computes=step.launch is not None and dataflow.computes(rows),
    )


def _is_drawn(reading: ReportedValue) -> bool:
    """What a launch only reads was written by an earlier one, or is an input: drawn there."""
    return reading.phase == "inputs" or reading.role != "in"


def reading(row: ValueRow, expr: str = "", dump: str = "") -> ReportedValue:
    """A row of an events file."""
    tensor = row if isinstance(row, TensorRow) else None
    scalar = row if isinstance(row, ScalarRow) else None
    return ReportedValue(
        phase=row.phase,
        name=row.arg,
        expr=expr,
        role=row.role,
        dtype=short_dtype(tensor.dtype) if tensor else scalar.type if scalar else "",
        shape=tensor.shape if tensor else None,
        device=tensor.device if tensor else "",
        statistics=_statistics(tensor) if tensor else None,
        value=(scalar.value or "") if scalar else "",
        file=tensor.file if tensor else "",
        sha256=tensor.sha256 if tensor else "",
        dump=dump,
    )


def facts(manifest: Manifest, runs: Iterable[RunDump]) -> tuple[tuple[str, str], ...]:
    """What the manifest says, in the order in which a reader wants it.

    Of the wrappers those that were called: the first process to write the manifest knew one.
    """
    called = list(dict.fromkeys((run.artifact, run.sha256) for run in runs if run.artifact))
    artifacts, hashes = [manifest.artifact or ""], [manifest.sha256 or ""]
    if called and [artifact for artifact, _ in called] != artifacts:
        artifacts = [artifact for artifact, _ in called]
        hashes = [sha for _, sha in called] if all(sha for _, sha in called) else []
    pairs = (
        ("Artifact", _listed(artifacts)),
        ("Its sha256", _listed(hashes)),
        ("torch", manifest.torch or ""),
        ("Device", manifest.device or ""),
        ("Probes", _listed(manifest.probes or ())),
        ("inductor-rewriter", manifest.rewriter or ""),
        ("Command", manifest.command or ""),
    )
    return tuple((name, text) for name, text in pairs if text)


def _statistics(row: TensorRow) -> ValueStatistics | None:
    if not isinstance(row.numel, int):
        return None
    return ValueStatistics(
        numel=row.numel,
        minimum=known(row.min),
        maximum=known(row.max),
        mean=known(row.mean),
        std=known(row.std),
        nan=row.count("nan"),
        inf=row.count("inf"),
        of=row.of,
    )


def known(statistic: Statistic | UnsetType) -> Number | None:
    """A number of the dump; `None` where it is unknown, or NaN."""
    value = number(statistic)
    return None if value is None or math.isnan(value) else value


def _moment(seconds: object) -> str:
    """Empty for what is no moment of the calendar."""
    if not isinstance(seconds, (int, float)):
        return ""
    try:
        moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more
