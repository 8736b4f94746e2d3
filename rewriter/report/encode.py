"""A report as JSON, for `--json`: every number as the dump has it. `page_data` is for the page."""

from __future__ import annotations

import math
from dataclasses import asdict

from rewriter.core.documents import as_json
from rewriter.core.types import Json
from rewriter.diagnosis.documents import verdict_entry
from rewriter.report.types import Finding, Number, Report, ReportedLaunch, ReportedValue


def to_json(report: Report) -> Json:
    """What `report --json` prints, less `format` and `version`; see docs/schemas/report.json."""
    return {
        "dump": report.path,
        "verdict": report.verdict,
        "facts": dict(report.facts),
        "verdicts": [
            {**as_json(verdict_entry(verdict)), "next": following}
            for verdict, following in report.verdicts
        ],
        "findings": [_finding(finding) for finding in report.findings],
        "runs": [
            {
                "name": run.name,
                "artifact": run.artifact,
                "started": run.started,
                "findings": [_finding(finding) for finding in run.findings],
                "launches": [_launch(launch) for launch in run.launches],
            }
            for run in report.runs
        ],
    }


def _finding(finding: Finding) -> Json:
    where = finding.launch
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "text": finding.text,
        "run": finding.run,
        "position": None if where is None else where.position,
        "launch": None if where is None else where.index,
        "times": finding.times,
    }


def _launch(launch: ReportedLaunch) -> Json:
    return {
        "position": launch.position,
        "launch": launch.index,
        "iteration": launch.iteration,
        "kernel": "" if launch.index is None else launch.kernel,
        "kind": launch.kind,
        "scope": launch.scope,
        "line": launch.line,
        "source_nodes": list(launch.source_nodes),
        "origins": list(launch.origins),
        "unfinished": launch.unfinished,
        "values": [_reading(reading) for reading in launch.readings],
    }


def _reading(reading: ReportedValue) -> Json:
    row: Json = {
        "phase": reading.phase,
        "arg": reading.name,
        "expr": reading.expr or reading.name,
        "role": reading.role,
        "dtype": reading.dtype,
        "shape": None if reading.shape is None else list(reading.shape),
    }
    if reading.shape is None:
        return {**row, "value": reading.value}
    row["device"] = reading.device
    if (found := reading.statistics) is not None:
        row |= {
            "numel": found.numel,
            "min": _finite(found.minimum),
            "max": _finite(found.maximum),
            "mean": _finite(found.mean),
            "std": _finite(found.std),
            "nan": found.nan,
            "inf": found.inf,
            "of": found.of,
        }
    if reading.file:
        row["file"] = reading.file
    if reading.sha256:
        row["sha256"] = reading.sha256
    if reading.note:
        row["note"] = reading.note
    if reading.bins is not None:
        row["histogram"] = {**asdict(reading.bins), "counts": list(reading.bins.counts)}
    return row


def _finite(number: Number | None) -> Number | str | None:
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return number
