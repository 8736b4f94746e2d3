"""The document of `report`: every number as the dump has it. The page has data of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, structs

from rewriter.commands._documents.verdicts import (
    SourceLineEntry,
    VerdictEntry,
    verdict_entry,
)
from rewriter.core.documents import Count, Document, Entry, Number, entry
from rewriter.core.types import Role, TrendStatistic
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump.rows import RowPhase
from rewriter.report import types as report
from rewriter.report.types import Severity

# Of a dump; a comparison, which has other kinds, has a page and no such document.
FindingKind = Literal[
    "fault", "unexpected", "unfinished", "cut", "nan", "nan-again", "inf", "inf-again",
    "near-overflow", "jump", "unmeasured", "file", "sampled",
]  # fmt: skip
# As the dump has them: a number that is not finite is a string, null is one of too few elements.
Statistic = int | Number | None


class ReportVerdictEntry(VerdictEntry, frozen=True, kw_only=True):
    """A verdict, as run and triage have it, and the command that tells more."""

    next: Annotated[str, Meta(description="Empty for none")]


class ReportFindingEntry(Entry, frozen=True, kw_only=True):
    """Something that a reader should know."""

    kind: FindingKind
    severity: Annotated[
        Severity, Meta(description="A finding is a fault, and makes the exit code 1")
    ]
    text: str
    run: Annotated[str, Meta(description="The first run that has it, such as rank0/run3")]
    position: Annotated[
        Count | None,
        Meta(description="The step of that run that it is about: its place in `launches`"),
    ]
    launch: Annotated[
        Count | None,
        Meta(description="The index of the launch in the wrapper; null for the inputs of the call"),
    ]
    times: Annotated[int, Meta(ge=1, description="How many runs have it")]


class HistogramEntry(Entry, frozen=True, kw_only=True):
    """Of the finite elements of a saved tensor."""

    low: float
    high: float
    counts: Annotated[tuple[Count, ...], Meta(description="Equal bins from low to high")]
    left_out: Annotated[Count, Meta(description="Elements that are not finite")]


class ReadingEntry(Entry, frozen=True, kw_only=True):
    """One value of a launch at one phase. Statistics are there if it was measured."""

    phase: RowPhase
    arg: str
    expr: Annotated[str, Meta(description="The expression behind the name, such as a view")]
    role: Role
    dtype: Annotated[str, Meta(description="As prints have it, such as f32 or bf16")]
    shape: Annotated[
        tuple[Count, ...] | None, Meta(description="null for a scalar, which has a `value`")
    ]
    value: str | UnsetType = UNSET
    device: str | UnsetType = UNSET
    numel: Count | UnsetType = UNSET
    min: Statistic | UnsetType = UNSET
    max: Statistic | UnsetType = UNSET
    mean: Statistic | UnsetType = UNSET
    std: Statistic | UnsetType = UNSET
    nan: Count | UnsetType = UNSET
    inf: Count | UnsetType = UNSET
    of: Literal["value", "magnitude"] | UnsetType = UNSET
    file: Annotated[str | UnsetType, Meta(description="Relative to the directory of the run")] = (
        UNSET
    )
    fingerprint: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    note: Annotated[
        str | UnsetType, Meta(description="Why a tensor with a file has no histogram")
    ] = UNSET
    histogram: HistogramEntry | UnsetType = UNSET


class ReportLaunchEntry(Entry, frozen=True, kw_only=True):
    """A launch as it ran."""

    position: Count
    launch: Annotated[Count | None, Meta(description="null for the inputs of the call")]
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
    unfinished: Annotated[
        bool, Meta(description="The record ends here, before what the launch wrote")
    ]
    values: tuple[ReadingEntry, ...]


class ReportRunEntry(Entry, frozen=True, kw_only=True):
    """One call of a wrapper."""

    name: Annotated[str, Meta(pattern=r"^rank\d+/run\d+$")]
    artifact: str
    started: Annotated[str, Meta(description="In UTC; empty if unknown")]
    graph: Annotated[
        str, Meta(description="Which part of what model, and its wrapper of the other direction")
    ]
    findings: tuple[ReportFindingEntry, ...]
    launches: Annotated[
        tuple[ReportLaunchEntry, ...],
        Meta(description="In the order in which they ran; the inputs, if recorded, come first"),
    ]


class TrendEntry(Entry, frozen=True, kw_only=True):
    """A value of a launch over the calls of a wrapper."""

    artifact: Annotated[str, Meta(description="The wrapper, as in `calls`")]
    launch: Count
    kernel: str
    arg: Annotated[str, Meta(description="Empty for the launch itself, of `time`")]
    values: Annotated[
        tuple[float | None, ...], Meta(description="null where it is not finite, or there is none")
    ]
    model: Annotated[str, Meta(description="Its lines of the model, such as model.py:9,10")]


class TrendsEntry(Entry, frozen=True, kw_only=True):
    """A statistic of what launches write, over calls."""

    statistic: TrendStatistic
    rank: Count
    calls: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="The runs that values are of, by wrapper: some of them where they are many"
        ),
    ]
    total: Annotated[dict[str, Count], Meta(description="How many calls there are")]
    rows: tuple[TrendEntry, ...]


class ReportDocument(Document, frozen=True, kw_only=True, tag="rewriter.report"):
    """`rewriter report --json`."""

    dump: Annotated[str, Meta(description="The dump's path, as it was given")]
    verdict: Annotated[str, Meta(description="One sentence")]
    facts: Annotated[
        dict[str, str],
        Meta(description="What the manifest says, under the names that the page shows"),
    ]
    verdicts: Annotated[
        tuple[ReportVerdictEntry, ...],
        Meta(
            description="Where the program ended, if it crashed, and where its first NaN is from; "
            "if that was infinities, the launch that made them comes first"
        ),
    ]
    findings: Annotated[
        tuple[ReportFindingEntry, ...],
        Meta(description="Of all runs, faults first; what several runs share is there once"),
    ]
    runs: tuple[ReportRunEntry, ...]
    trends: Annotated[
        TrendsEntry | UnsetType, Meta(description="With --trend: a statistic over calls")
    ] = UNSET


def report_document(made: report.Report) -> ReportDocument:
    return ReportDocument(
        dump=made.path,
        verdict=made.verdict,
        facts=dict(made.facts),
        verdicts=tuple(_verdict(verdict, following) for verdict, following in made.verdicts),
        findings=tuple(map(_finding, made.findings)),
        runs=tuple(
            entry(
                ReportRunEntry,
                run,
                graph=run.names.part,
                findings=tuple(map(_finding, run.findings)),
                launches=tuple(map(_launch, run.launches)),
            )
            for run in made.runs
        ),
        trends=UNSET if made.trends is None else entry(TrendsEntry, made.trends),
    )


def _verdict(verdict: Verdict, following: str) -> ReportVerdictEntry:
    return ReportVerdictEntry(**structs.asdict(verdict_entry(verdict)), next=following)


def _finding(finding: report.Finding) -> ReportFindingEntry:
    where = finding.launch
    return entry(
        ReportFindingEntry,
        finding,
        position=None if where is None else where.position,
        launch=None if where is None else where.place.launch,
    )


def _launch(launch: report.ReportedLaunch) -> ReportLaunchEntry:
    return entry(
        ReportLaunchEntry,
        launch.place,
        position=launch.position,
        kernel=launch.kernel if launch.is_launch else "",
        unfinished=launch.unfinished,
        values=tuple(map(_reading, launch.values)),
    )


def _reading(value: report.ReportedValue) -> ReadingEntry:
    tensor = value.tensor
    made = ReadingEntry(
        phase=value.row.phase,
        arg=value.row.arg,
        expr=value.expr or value.row.arg,
        role=value.row.role,
        dtype=value.dtype,
        shape=None if tensor is None else tensor.shape,
    )
    if tensor is None:
        return structs.replace(made, value=value.value)
    if tensor.is_measured:
        made = structs.replace(made, numel=tensor.numel, **tensor.statistics, of=tensor.of)
    return structs.replace(
        made,
        device=tensor.device,
        file=tensor.file or UNSET,
        fingerprint=tensor.fingerprint or UNSET,
        sha256=tensor.sha256 or UNSET,
        note=value.note or UNSET,
        histogram=UNSET if value.bins is None else HistogramEntry(**vars(value.bins)),
    )
