"""A report as JSON: in full for `--json`, and compact for the script of the page.

`--json` keeps every number as the dump has it. The page gets numbers of six digits, strings once,
and no reading that repeats another: 10,000 launches are a few megabytes then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rewriter.core.documents import as_json
from rewriter.core.types import Json
from rewriter.diagnosis.documents import verdict_entry
from rewriter.report.types import (
    Bins,
    Difference,
    Finding,
    Launch,
    Number,
    Reading,
    Report,
    Run,
    Statistics,
    TensorDifference,
)

_METRICS = (
    "rms", "snr", "cosine", "ulp", "mismatched", "atol_needed", "rtol_needed", "nan_a", "nan_b",
    "inf",
)  # fmt: skip
_EXACT = 2**53  # integers beyond are no numbers of JavaScript's


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


def _launch(launch: Launch) -> Json:
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


def _reading(reading: Reading) -> Json:
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


class Strings(dict[Any, int]):
    """Numbers strings, or other values, from 0; the first is `empty`."""

    def __init__(self, empty: Any = "") -> None:
        super().__init__({empty: 0})

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number

    @property
    def all(self) -> list[Any]:
        return list(self)


class Tables:
    """What the runs of a page share, so that each has little of its own: strings, what is known of
    a launch and of an argument before it runs, and the sources of kernels."""

    def __init__(self) -> None:
        self.strings, self.sources = Strings(), Strings()
        self.facts, self.labels = Strings(()), Strings(())

    def json(self) -> Json:
        return {
            "strings": self.strings.all,
            "facts": self.facts.all,
            "labels": self.labels.all,
            "sources": self.sources.all,
        }


def compact(run: Run, tables: Tables) -> list[Any]:
    """The launches of a run for the page's script, which has the same order of fields."""
    strings = tables.strings
    launches = []
    for launch in run.launches:
        facts = (
            launch.index,
            strings[launch.kernel],
            strings[launch.kind],
            strings[launch.scope],
            launch.line,
            strings[", ".join(launch.source_nodes)],
            strings[", ".join(launch.origins)],
            tables.sources[launch.source],
        )
        row: list[Any] = [
            tables.facts[facts],
            launch.iteration,
            [_compact_reading(reading, tables) for reading in distinct(launch.readings)],
        ]
        if launch.difference is not None:
            row.append(_compact_difference(launch.difference, strings))
        launches.append(row)
    return launches


def distinct(readings: Sequence[Reading]) -> list[Reading]:
    """Without what is the same after a launch that only reads it."""
    before = {
        (reading.dump, reading.name, reading.statistics)
        for reading in readings
        if reading.phase == "before" and reading.statistics is not None
    }
    return [
        reading
        for reading in readings
        if not (
            reading.phase == "after"
            and reading.role == "in"
            and (reading.dump, reading.name, reading.statistics) in before
        )
    ]


def _compact_reading(reading: Reading, tables: Tables) -> list[Any]:
    strings, found = tables.strings, reading.statistics
    label = (
        strings[reading.phase],
        strings[reading.role],
        strings[reading.name],
        strings[reading.type],
        strings["" if reading.expr == reading.name else reading.expr],
        strings[reading.device],
        reading.dump,
        None if found is None else found.numel,
        int(found is not None and found.of == "magnitude"),
    )
    row = [
        tables.labels[label],
        _compact_statistics(found),
        reading.value,
        reading.file,
        reading.sha256,
        _compact_bins(reading.bins),
    ]
    while row[-1] in (0, ""):
        row.pop()
    return row


def _compact_statistics(found: Statistics | None) -> list[Any] | int:
    if found is None:
        return 0
    numbers = [_short(x) for x in (found.minimum, found.maximum, found.mean, found.std)]
    counts = [found.nan, found.inf]
    while counts and not counts[-1]:
        counts.pop()
    return [*numbers, *counts]


def _compact_bins(bins: Bins | None) -> list[Any] | int:
    if bins is None:
        return 0
    return [_short(bins.low), _short(bins.high), list(bins.counts), bins.left_out]


def _compact_difference(difference: Difference, strings: Strings) -> list[Any]:
    return [
        strings[difference.state],
        strings[difference.inputs],
        strings[difference.blame],
        int(difference.moved),
        difference.only,
        strings[difference.other],
        [strings[reason] for reason in difference.reasons],
        [strings[producer] for producer in difference.producers],
        [_compact_tensor(tensor, strings) for tensor in difference.tensors],
    ]


def _compact_tensor(tensor: TensorDifference, strings: Strings) -> list[Any]:
    metrics = tensor.metrics
    return [
        strings[tensor.name],
        strings[tensor.phase],
        int(tensor.written),
        strings[tensor.state],
        strings[tensor.basis],
        strings[tensor.note],
        _short(tensor.error),
        _short(tensor.allowed),
        int(tensor.estimated),
        strings[tensor.type],
        0 if not metrics or metrics["identical"] else _compact_metrics(metrics),
    ]


def _compact_metrics(metrics: Json) -> list[Any]:
    return [
        *(_compact_extreme(metrics[name]) for name in ("max_abs", "max_rel")),
        *(_short(metrics[name]) for name in _METRICS),
    ]


def _compact_extreme(extreme: Json | None) -> list[Any] | None:
    if extreme is None:
        return None
    numbers = [_short(extreme[name]) for name in ("error", "a", "b")]
    return [*numbers, list(extreme["index"])]


def _short(number: Number | None) -> Number | str | None:
    """Six digits of a float; an integer that JavaScript would round is a string."""
    if isinstance(number, bool) or number is None:
        return number
    if isinstance(number, int):
        return number if abs(number) <= _EXACT else str(number)
    if not math.isfinite(number):
        return str(number)
    short = float(f"{number:.6g}")
    # `2.0` is a digit more than `2`; of a zero the sign would be lost.
    return int(short) if short.is_integer() and 0 < abs(short) < 1e6 else short
