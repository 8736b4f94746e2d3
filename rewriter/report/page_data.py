"""What the script of a page gets of a report: numbers of six digits, strings once, and no reading
that repeats another: 10,000 launches are a few megabytes then.

An object is a list of values, without names. `FIELDS` says which value stands where: rows are made
by it here, and the page has it for the script, which reads them by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rewriter.core.types import Json
from rewriter.report.types import (
    Bins,
    LaunchDifference,
    Number,
    ReportedRun,
    ReportedValue,
    TensorDifference,
    ValueStatistics,
)

TEXT = "text"  # the number of one of the strings
TEXTS = "texts"  # a list of those
VALUE = ""
FIELDS: dict[str, dict[str, str]] = {
    "launch": {"fact": VALUE, "iteration": VALUE, "readings": VALUE, "difference": VALUE},
    "fact": {
        "index": VALUE,
        "kernel": TEXT,
        "kind": TEXT,
        "scope": TEXT,
        "line": VALUE,
        "nodes": TEXT,
        "origins": TEXT,
        "source": VALUE,
    },
    "reading": {
        "label": VALUE,
        "statistics": VALUE,
        "value": VALUE,
        "file": VALUE,
        "sha256": VALUE,
        "bins": VALUE,
    },
    "label": {
        "phase": TEXT,
        "role": TEXT,
        "name": TEXT,
        "type": TEXT,
        "expr": TEXT,
        "device": TEXT,
        "dump": VALUE,
        "numel": VALUE,
        "magnitude": VALUE,
    },
    "statistics": dict.fromkeys(("min", "max", "mean", "std", "nan", "inf"), VALUE),
    "bins": dict.fromkeys(("low", "high", "counts", "left_out"), VALUE),
    "difference": {
        "state": TEXT,
        "inputs": TEXT,
        "blame": TEXT,
        "moved": VALUE,
        "only": VALUE,
        "other": TEXT,
        "reasons": TEXTS,
        "producers": TEXTS,
        "tensors": VALUE,
    },
    "tensor": {
        "name": TEXT,
        "phase": TEXT,
        "written": VALUE,
        "state": TEXT,
        "basis": TEXT,
        "note": TEXT,
        "error": VALUE,
        "allowed": VALUE,
        "estimated": VALUE,
        "type": TEXT,
        "metrics": VALUE,
    },
    "metrics": dict.fromkeys(
        (
            "max_abs", "max_rel", "rms", "snr", "cosine", "ulp", "mismatched", "atol_needed",
            "rtol_needed", "nan_a", "nan_b", "inf",
        ),
        VALUE,
    ),
    "extreme": dict.fromkeys(("error", "a", "b", "index"), VALUE),
}  # fmt: skip
_ORDER = {kind: tuple(fields.items()) for kind, fields in FIELDS.items()}
_EXACT = 2**53  # integers beyond are no numbers of JavaScript's


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
            "fields": {kind: list(fields.items()) for kind, fields in FIELDS.items()},
            "strings": self.strings.all,
            "facts": self.facts.all,
            "labels": self.labels.all,
            "sources": self.sources.all,
        }

    def row(self, kind: str, /, **values: Any) -> list[Any]:
        """An object as the list of its values. Those that are left out come last."""
        made = []
        for name, how in _ORDER[kind]:
            if name not in values:
                break
            value = values[name]
            if how == TEXT:
                value = self.strings[value]
            elif how == TEXTS:
                value = [self.strings[one] for one in value]
            made.append(value)
        assert len(made) == len(values), f"{kind} has other fields than {list(values)}"
        return made


def compact(run: ReportedRun, tables: Tables) -> list[Any]:
    """The launches of a run for the page's script."""
    launches = []
    for launch in run.launches:
        fact = tables.row(
            "fact",
            index=launch.index,
            kernel=launch.kernel,
            kind=launch.kind,
            scope=launch.scope,
            line=launch.line,
            nodes=", ".join(launch.source_nodes),
            origins=", ".join(launch.origins),
            source=tables.sources[launch.source],
        )
        difference = launch.difference
        how = {} if difference is None else {"difference": _difference(difference, tables)}
        launches.append(
            tables.row(
                "launch",
                fact=tables.facts[tuple(fact)],
                iteration=launch.iteration,
                readings=[_reading(reading, tables) for reading in distinct(launch.readings)],
                **how,
            )
        )
    return launches


def distinct(readings: Sequence[ReportedValue]) -> list[ReportedValue]:
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


def _reading(reading: ReportedValue, tables: Tables) -> list[Any]:
    statistics = reading.statistics
    label = tables.row(
        "label",
        phase=reading.phase,
        role=reading.role,
        name=reading.name,
        type=reading.type,
        expr="" if reading.expr == reading.name else reading.expr,
        device=reading.device,
        dump=reading.dump,
        numel=None if statistics is None else statistics.numel,
        magnitude=int(statistics is not None and statistics.of == "magnitude"),
    )
    row = tables.row(
        "reading",
        label=tables.labels[tuple(label)],
        statistics=0 if statistics is None else _statistics(statistics, tables),
        value=reading.value,
        file=reading.file,
        sha256=reading.sha256,
        bins=0 if reading.bins is None else _bins(reading.bins, tables),
    )
    while row[-1] in (0, ""):
        row.pop()
    return row


def _statistics(statistics: ValueStatistics, tables: Tables) -> list[Any]:
    row = tables.row(
        "statistics",
        min=_short(statistics.minimum),
        max=_short(statistics.maximum),
        mean=_short(statistics.mean),
        std=_short(statistics.std),
        nan=statistics.nan,
        inf=statistics.inf,
    )
    while row[-1] == 0 and len(row) > len(("min", "max", "mean", "std")):
        row.pop()
    return row


def _bins(bins: Bins, tables: Tables) -> list[Any]:
    return tables.row(
        "bins",
        low=_short(bins.low),
        high=_short(bins.high),
        counts=list(bins.counts),
        left_out=bins.left_out,
    )


def _difference(difference: LaunchDifference, tables: Tables) -> list[Any]:
    return tables.row(
        "difference",
        state=difference.state,
        inputs=difference.inputs,
        blame=difference.blame,
        moved=int(difference.moved),
        only=difference.only,
        other=difference.other,
        reasons=difference.reasons,
        producers=difference.producers,
        tensors=[_tensor(tensor, tables) for tensor in difference.tensors],
    )


def _tensor(tensor: TensorDifference, tables: Tables) -> list[Any]:
    metrics = tensor.metrics
    return tables.row(
        "tensor",
        name=tensor.name,
        phase=tensor.phase,
        written=int(tensor.written),
        state=tensor.state,
        basis=tensor.basis,
        note=tensor.note,
        error=_short(tensor.error),
        allowed=_short(tensor.allowed),
        estimated=int(tensor.estimated),
        type=tensor.type,
        metrics=0 if not metrics or metrics["identical"] else _metrics(metrics, tables),
    )


def _metrics(metrics: Json, tables: Tables) -> list[Any]:
    extremes = ("max_abs", "max_rel")
    return tables.row(
        "metrics",
        **{
            name: _extreme(metrics[name], tables) if name in extremes else _short(metrics[name])
            for name in FIELDS["metrics"]
        },
    )


def _extreme(extreme: Json | None, tables: Tables) -> list[Any] | None:
    if extreme is None:
        return None
    numbers = {name: _short(extreme[name]) for name in ("error", "a", "b")}
    return tables.row("extreme", **numbers, index=list(extreme["index"]))


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
