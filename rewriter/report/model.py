"""Makes a report of a dump: every step with its values, in the words of `types`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.diagnosis.conclusion import read_conclusion
from rewriter.diagnosis.nonfinite import Where, overflow_of
from rewriter.dump.reading import Dump, RunDump, Step
from rewriter.report import findings, verdicts
from rewriter.report.types import (
    Finding,
    Histogram,
    Launch,
    Number,
    Reading,
    Report,
    Run,
    Sources,
    Statistics,
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
    found = findings.merged([run.findings for run in chosen])
    judged = verdicts.of_dump(dump, called, found, where)
    crash = next((one for one, _ in judged if one.ended is not None), None)
    if crash is not None and read_conclusion(dump.path) is None:
        crash = None  # nobody knows how it ended: what the record says is more
    said = sentence(crash.headline) if crash else findings.verdict(found, chosen)
    return Report(
        title=dump.path.absolute().name,
        path=str(dump.path),
        verdict=f"{said} {dump.caveat}".rstrip(),
        facts=facts(of_wrappers(dump.manifest, called)),
        findings=found,
        runs=chosen,
        verdicts=judged,
    )


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def read_run(
    dumped: RunDump, histogram: Histogram | None, sources: Mapping[str, str] | None = None
) -> Run:
    """A run with its findings. `histogram` is asked for the tensors that have a file; `sources` are
    those of the wrapper's kernels, by name.

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    try:
        launches = [launch(dumped, step, histogram, sources or {}) for step in dumped.steps]
        if launches and _is_unfinished(dumped, launches[-1]):
            launches[-1] = replace(launches[-1], unfinished=True)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise RewriterError(
            "corrupt-dump",
            f"{dumped.path}: what it says of a launch is not as expected: {error!r}",
            hint="Copy the dump again, or run the program once more.",
        ) from error
    return Run(
        name=dumped.name,
        artifact=dumped.artifact,
        started=_moment(dumped.facts.get("started")),
        launches=tuple(launches),
        findings=(
            *_reported(dumped, launches),
            *findings.of_run(
                dumped.name, launches, cut=dumped.cut, overflow=_overflow(dumped, launches)
            ),
        ),
    )


def _overflow(dumped: RunDump, launches: Sequence[Launch]) -> tuple[Launch, Launch] | None:
    """The launch whose infinities became the first NaN, and the one that made it of them."""
    origin = overflow_of(dumped)
    if origin is None or origin.overflow is None:
        return None
    return launches[origin.overflow.step.position], launches[origin.node.step.position]


def _reported(dumped: RunDump, launches: Sequence[Launch]) -> Iterator[Finding]:
    """What probes found out themselves: a fault of the device, inputs that do not fit."""
    if (row := next(dumped.having("error"), None)) is not None:
        which = (row.get("launch"), row.get("iteration", 0))
        launch = next((x for x in launches if (x.index, x.iteration) == which), None)
        when = "right after" if row.get("phase") == "after" else "before"
        text = f"The device was found faulty {when} {launch or 'the first launch'}: {row['error']}."
        yield Finding("fault", "finding", text, dumped.name, launch)
    wrong = [f"{row.get('arg', '')}: {row['unexpected']}" for row in dumped.having("unexpected")]
    if wrong:
        inputs = next((x for x in launches if x.index is None), None)
        text = f"Inputs are not what it was compiled for: {'; '.join(wrong)}."
        yield Finding("unexpected", "finding", text, dumped.name, inputs)


def _is_unfinished(dumped: RunDump, last: Launch) -> bool:
    """Whether the record ends before all that a launch writes was read after it.

    Values are recorded in the order of the table: what is missing in between could not be read,
    what is missing at the end was never reached.
    """
    if last.index is None:
        return False
    expected = [
        (argument[0], argument[1]) for argument in dumped.table.get(last.index, {}).get("after", ())
    ]
    recorded = {reading.name for reading in last.readings if reading.phase == "after"}
    if not recorded:
        return bool(expected)
    # A list has a row for each of its members: `buf3[0]`.
    recorded |= {name.partition("[")[0] for name in recorded}
    reached = [at for at, (_, name) in enumerate(expected) if name in recorded]
    return any(role != "in" for role, _ in expected[max(reached, default=len(expected)) + 1 :])


def launch(
    dumped: RunDump, step: Step, histogram: Histogram | None, sources: Mapping[str, str]
) -> Launch:
    """A step of a run with everything that was recorded of it."""
    facts = dumped.table.get(-1 if step.launch is None else step.launch, {})
    expressions = {
        (phase, argument[1]): argument[2]
        for phase in ("before", "after")
        for argument in facts.get(phase) or ()
        if len(argument) > 2
    }
    readings = []
    for row in dumped.rows(step):
        if "arg" not in row:
            continue  # a launch of which only the name was recorded
        if not {"phase", "role"} <= row.keys():
            raise ValueError(f"{row['arg']} has no phase or no role")
        made = reading(row, expressions.get((row["phase"], row["arg"]), ""))
        if histogram is not None and made.file and _is_drawn(made):
            found = histogram(dumped.path, made)
            if isinstance(found, str):
                made = replace(made, note=found)
            else:
                made = replace(made, bins=found)
        readings.append(made)
    return Launch(
        position=step.position,
        index=step.launch,
        iteration=step.iteration,
        kernel=step.kernel or "inputs of the call",
        kind=str(facts.get("kind", "")),
        scope=str(facts.get("scope", "")),
        line=int(facts.get("line", 0)),
        source_nodes=tuple(map(str, facts.get("source_nodes", ()))),
        origins=tuple(map(str, facts.get("origins", ()))),
        readings=tuple(readings),
        source=sources.get(step.kernel, ""),
    )


def _is_drawn(reading: Reading) -> bool:
    """What a launch only reads was written by an earlier one, or is an input: drawn there."""
    return reading.phase == "inputs" or reading.role != "in"


def reading(row: Json, expr: str = "", dump: str = "") -> Reading:
    """A row of an events file."""
    is_tensor = "dtype" in row
    return Reading(
        phase=str(row.get("phase", "")),
        name=str(row.get("arg", "")),
        expr=str(expr),
        role=str(row.get("role", "")),
        dtype=short_dtype(str(row["dtype"])) if is_tensor else str(row.get("type", "")),
        shape=tuple(row.get("shape", ())) if is_tensor else None,
        device=str(row.get("device", "")),
        statistics=_statistics(row),
        value=str(row.get("value", "")),
        file=str(row.get("file", "")),
        sha256=str(row.get("sha256", "")),
        dump=dump,
    )


def facts(manifest: Json) -> tuple[tuple[str, str], ...]:
    """What the manifest says, in the order in which a reader wants it."""
    names = (
        ("artifact", "Artifact"),
        ("sha256", "Its sha256"),
        ("torch", "torch"),
        ("device", "Device"),
        ("probes", "Probes"),
        ("rewriter", "inductor-rewriter"),
        ("command", "Command"),
    )
    said = ((name, manifest.get(key)) for key, name in names)
    return tuple(
        (name, _listed(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in said
        if value not in (None, "", [])
    )


def of_wrappers(manifest: Json, runs: Iterable[RunDump]) -> Json:
    """A manifest, with the wrappers that were called: the first process to write it knew one."""
    called = list(dict.fromkeys((run.artifact, run.sha256) for run in runs if run.artifact))
    if not called or (len(called) == 1 and called[0][0] == manifest.get("artifact")):
        return manifest
    hashes = {"sha256": [sha for _, sha in called]} if all(sha for _, sha in called) else {}
    others = {key: value for key, value in manifest.items() if key != "sha256"}
    return {**others, **hashes, "artifact": [artifact for artifact, _ in called]}


def _statistics(row: Json) -> Statistics | None:
    if "numel" not in row:
        return None
    return Statistics(
        numel=int(row["numel"]),
        minimum=number(row.get("min")),
        maximum=number(row.get("max")),
        mean=number(row.get("mean")),
        std=number(row.get("std")),
        nan=int(row.get("nan", 0)),
        inf=int(row.get("inf", 0)),
        of="magnitude" if row.get("of") == "magnitude" else "value",
    )


def number(value: Any) -> Number | None:
    """A number of the dump; non-finite ones are strings there. `None` where it is unknown: NaN, or
    an integer beyond every type of a tensor.
    """
    if value is None:
        return None
    try:
        size = float(value)
    except OverflowError:
        return None
    if math.isnan(size):
        return None
    return value if isinstance(value, int) else size


def _moment(seconds: Any) -> str:
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
