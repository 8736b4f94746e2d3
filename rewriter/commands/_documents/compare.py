"""The document of `compare`, from a comparison of two dumps."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from msgspec import Meta

from rewriter.commands._documents.verdicts import SourceLineEntry
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.types import (
    Basis,
    Comparison,
    Extreme,
    LaunchComparison,
    Metrics,
    Outcome,
    State,
    TensorComparison,
)
from rewriter.core.documents import Count, Entry, Number, entry
from rewriter.core.types import Json
from rewriter.dump import rows
from rewriter.dump.rows import RowPhase, ValueRow

_OF_LAUNCH = ("launch", "phase", "kernel", "iteration")  # fields of a row
ManifestEntry = Annotated[dict[str, Any], Meta(description="The dump's manifest.json")]
ComparedRow = Annotated[
    dict[str, Any],
    Meta(
        description="The row of events.jsonl: arg, role, dtype, shape, stride, device, statistics, "
        "file; of a scalar type and value",
        extra_json_schema={"required": ["arg", "role"]},
    ),
]
StateField = Annotated[
    State,
    Meta(
        description="rounding: in another precision, and no further off than rounding and what was "
        "read explain; numeric: outside the tolerance, or further off than that; non-finite: NaN "
        "or an infinity on one side; structural: shapes or types differ, or there is no "
        "counterpart; unknown: could not be compared"
    ),
]
NanElements = Annotated[
    Count,
    Meta(
        description="Elements that are NaN on this side and not on the other. Where both are NaN "
        "they are equal, and not counted: the rows' `nan` counts all"
    ),
]


class DumpEntry(Entry, frozen=True, kw_only=True):
    """One of the two dumps."""

    path: str
    manifest: ManifestEntry


class CountsEntry(Entry, frozen=True, kw_only=True):
    """How many launches, of those that ran; the inputs of a call are none."""

    matched: Annotated[Count, Meta(description="Launches that stand for each other")]
    equal: Annotated[Count, Meta(description="Of these, those with equal results")]
    identical: Annotated[Count, Meta(description="Of these, those equal bit for bit")]
    rounding: Annotated[
        Count, Meta(description="Matched, with results that differ by what rounding explains")
    ]
    culprits: Count
    downstream: Count
    unknown: Annotated[Count, Meta(description="Matched, without results that could be compared")]
    moved: Annotated[Count, Meta(description="Matched, in another order")]
    only_a: Annotated[Count, Meta(description="Launches of A without a counterpart")]
    only_b: Annotated[Count, Meta(description="Launches of B without a counterpart")]
    by_statistics: Annotated[Count, Meta(description="Values compared by statistics alone")]
    by_hash: Annotated[Count, Meta(description="Values compared by hash alone")]


class ToleranceEntry(Entry, frozen=True, kw_only=True):
    """As of torch.testing.assert_close."""

    rtol: Number
    atol: Number


class RunPairEntry(Entry, frozen=True, kw_only=True):
    """Two calls that stand for each other."""

    a: str
    b: str


class PlaceEntry(Entry, frozen=True, kw_only=True):
    """A launch as it ran in one dump."""

    step: Annotated[Count, Meta(description="Position in its run")]
    launch: Annotated[
        Count | None,
        Meta(
            description="Index in its wrapper; null: the inputs of the call, or, with the kernel "
            '"outputs", what it returned'
        ),
    ]
    iteration: Count
    kernel: str
    kind: str
    scope: str
    line: Count
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    lines: Annotated[
        tuple[SourceLineEntry, ...], Meta(description="The lines of the model that it computes")
    ]
    computes: Annotated[tuple[str, ...], Meta(description="Nodes of Inductor's graph")]


class ExtremeEntry(Entry, frozen=True, kw_only=True):
    """The element where an error is largest, and the values that differ there."""

    error: Number
    index: tuple[Count, ...]
    a: Number
    b: Number


class MetricsEntry(Entry, frozen=True, kw_only=True):
    """How two tensors of one shape differ; errors are over finite pairs of elements."""

    numel: Count
    identical: Annotated[bool, Meta(description="Bit for bit")]
    max_abs: ExtremeEntry | None
    max_rel: ExtremeEntry | None
    mean_abs: Number
    rms: Number
    mean_a: Number
    mean_b: Number
    cosine: Number
    snr: Annotated[Number, Meta(description="dB; higher is better, infinite for equal tensors")]
    rms_b: Annotated[Number, Meta(description="Root mean square of B")]
    gain: Annotated[
        Number,
        Meta(
            description="How much larger A is than B on the whole: sum((a - b) b) / sum(b b). "
            'Rounding leaves it near 0; "nan" where B is 0'
        ),
    ]
    ulp: Count | None
    mismatched: Count
    nan_a: NanElements
    nan_b: NanElements
    inf: Annotated[
        Count,
        Meta(
            description="Elements that are an infinity on one side, and neither NaN nor the same "
            "infinity on the other"
        ),
    ]
    nonfinite: Annotated[
        ExtremeEntry | None,
        Meta(description="The first of these elements; null where there is none"),
    ]
    atol_needed: Number
    rtol_needed: Number


class TensorComparisonEntry(Entry, frozen=True, kw_only=True):
    """One argument of a launch in both dumps."""

    phase: RowPhase
    state: StateField
    basis: Annotated[Basis, Meta(description="What was compared")]
    note: Annotated[str, Meta(description="Why nothing was compared, or what it cannot tell")]
    a: ComparedRow
    b: ComparedRow
    tolerance: ToleranceEntry | None
    metrics: MetricsEntry | None
    allowed: Annotated[
        float | None,
        Meta(
            description="Between runs of different precision: the root mean square of the error, "
            "in proportion to that of B, that rounding and what the launch read explain"
        ),
    ]


class LaunchComparisonEntry(Entry, frozen=True, kw_only=True):
    """A launch of one dump, and its counterpart in the other; null where it has none."""

    run: Annotated[Count, Meta(description="Position in `runs`")]
    a: PlaceEntry | None
    b: PlaceEntry | None
    state: StateField
    inputs: StateField
    blame: Literal["culprit", "downstream"] | None
    moved: bool
    reasons: Annotated[tuple[str, ...], Meta(description="Sentences for people")]
    lone: Annotated[
        tuple[str, ...],
        Meta(
            description='Results, or inputs of the call, that one side alone has, such as "A buf3"'
        ),
    ]
    producers: Annotated[
        tuple[Count, ...],
        Meta(
            description="Steps of A whose differing results it read; none where a launch of B "
            "alone made the difference"
        ),
    ]
    reads: tuple[TensorComparisonEntry, ...]
    results: tuple[TensorComparisonEntry, ...]


class ComparisonEntry(Entry, frozen=True, kw_only=True):
    """Two dumps, launch by launch."""

    verdict: Annotated[
        Outcome,
        Meta(
            description="Of everything that could be compared. rounding: the runs differ in "
            "precision, and rounding explains every difference"
        ),
    ]
    sentence: Annotated[str, Meta(description="The verdict for people")]
    limits: Annotated[
        tuple[str, ...],
        Meta(
            description="What the verdict cannot see: values compared by statistics alone, which "
            "another order of the same elements leaves as they are, or by hash alone"
        ),
    ]
    a: DumpEntry
    b: DumpEntry
    counts: CountsEntry
    needed: Annotated[
        ToleranceEntry | None,
        Meta(
            description="The smallest tolerances under which all saved results pass, each without "
            "the other"
        ),
    ]
    culprits: Annotated[
        tuple[Count, ...],
        Meta(
            description="Positions in `launches`, in the order in which they ran; the first is "
            "where the runs diverge"
        ),
    ]
    runs: tuple[RunPairEntry, ...]
    unpaired: Annotated[
        tuple[str, ...], Meta(description='Runs without a counterpart, such as "A rank0/run1"')
    ]
    launches: tuple[LaunchComparisonEntry, ...]


class CompareDocument(
    ComparisonEntry, frozen=True, kw_only=True, tag_field="format", tag="rewriter.compare"
):
    """`rewriter compare --json`."""

    version: Literal[1] = 1


def compare_document(comparison: Comparison) -> CompareDocument:
    return CompareDocument(**_fields(comparison))


def comparison_entry(comparison: Comparison) -> ComparisonEntry:
    """A comparison as a part of another document."""
    return ComparisonEntry(**_fields(comparison))


def _fields(comparison: Comparison) -> Json:
    positions = {id(launch): position for position, launch in enumerate(comparison.launches)}
    needed = describe.needed(comparison)
    return {
        "verdict": describe.outcome(comparison),
        "sentence": describe.verdict(comparison),
        "limits": tuple(describe.limits(comparison)),
        "a": DumpEntry(path=str(comparison.a), manifest=rows.to_json(comparison.manifest_a)),
        "b": DumpEntry(path=str(comparison.b), manifest=rows.to_json(comparison.manifest_b)),
        "counts": entry(CountsEntry, describe.count(comparison)),
        "needed": needed and ToleranceEntry(**_numbers({"rtol": needed.rtol, "atol": needed.atol})),
        "culprits": tuple(positions[id(launch)] for launch in comparison.culprits),
        "runs": tuple(entry(RunPairEntry, run) for run in comparison.runs),
        "unpaired": tuple(comparison.unpaired),
        "launches": tuple(
            _launch(launch, number)
            for number, run in enumerate(comparison.runs)
            for launch in run.launches
        ),
    }


def _launch(launch: LaunchComparison, run: int) -> LaunchComparisonEntry:
    return entry(
        LaunchComparisonEntry,
        launch,
        run=run,
        blame=launch.blame or None,
        lone=launch.unmatched,
        producers=tuple(place.step for place in launch.producers),
        reads=tuple(map(_tensor, launch.reads)),
        results=tuple(map(_tensor, launch.results)),
    )


def _tensor(tensor: TensorComparison) -> TensorComparisonEntry:
    metrics = None if tensor.metrics is None else _metrics(tensor.metrics)
    rows = {"a": _row(tensor.a), "b": _row(tensor.b)}
    return entry(TensorComparisonEntry, tensor, metrics=metrics, **rows)


def _row(row: ValueRow) -> Json:
    """A row of the events file, less what the launch says already."""
    return {name: value for name, value in rows.to_json(row).items() if name not in _OF_LAUNCH}


def _metrics(metrics: Metrics) -> MetricsEntry:
    return MetricsEntry(**_numbers(vars(metrics)))


def _numbers(values: Json) -> Json:
    """Numbers as JSON has them: those that are not finite are strings."""
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:
    if isinstance(value, Extreme):
        return ExtremeEntry(**_numbers(vars(value)))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
