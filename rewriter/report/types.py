"""The values of a report: what happened in each run, and what is worth saying about it.

Made from a dump or from a comparison of two, of whose values they consist; shown as a page or as
JSON. No I/O here, no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, cast

from msgspec import UNSET, Meta, UnsetType

from rewriter.comparison.dumps.types import LaunchComparison
from rewriter.core.documents import Count
from rewriter.core.dtypes import short_dtype
from rewriter.core.printed import printed
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.names import NO_NAMES, Names
from rewriter.dump.reading import RunDump, label
from rewriter.dump.rows import ScalarRow, TensorRow, ValueRow
from rewriter.report.trends import Trends

Severity = Literal["finding", "note"]
DumpKind = Literal[
    "fault", "unexpected", "unfinished", "cut", "nan", "nan-again", "inf", "inf-again",
    "near-overflow", "jump", "unmeasured", "file", "sampled", "skipped", "wrong",
]  # fmt: skip


@dataclass(frozen=True)
class Bins:
    """A histogram of the finite elements: equal bins from `low` to `high`, and how many in each.

    `left_out` counts the elements that are not finite.
    """

    low: float
    high: float
    counts: tuple[Count, ...]
    left_out: Count


@dataclass(frozen=True)
class Tiles:
    """A tensor as a grid of at most 64 by 64 tiles, its last axis along the columns: the mean of
    the finite elements of each tile, `None` where there are none, and which tiles hold others.

    `first` is the index of the first element that is NaN, or else infinite; `tile` holds it. Of a
    comparison they are the tiles of |a - b|, and elements are wrong that are not within tolerance.
    """

    rows: int
    columns: int
    means: tuple[float | None, ...]
    wrong: tuple[int, ...]
    first: tuple[int, ...] | None = None
    tile: int | None = None


@printed(
    "device=row.device row.numel row.min row.max row.mean row.std row.nan row.inf of"
    " file?=row.file fingerprint?=row.fingerprint sha256?=row.sha256"
)
class TensorFacts(NamedTuple):
    """What is printed of a tensor: the statistics if it was measured, null for one of too few
    elements. `file` is relative to the directory of the run."""

    row: TensorRow

    @property
    def of(self) -> Literal["value", "magnitude"] | UnsetType:
        return self.row.of if self.row.is_measured else UNSET


@printed(
    "row.phase row.arg expr=expression row.role dtype shape value? *facts note? histogram?=bins"
)
@dataclass(frozen=True)
class ReportedValue:
    """A row of a dump, "A" or "B" in a comparison, with what else is known of it.

    `expr` is the expression behind its name, empty if there is none. `note` says why there is no
    histogram of a tensor that has a file. `in_model` is what the model calls it, if that is known.
    """

    row: ValueRow
    expr: str = ""
    dump: str = ""
    bins: Bins | None = None
    note: str = ""
    in_model: str = ""
    tiles: Tiles | None = None

    @property
    def expression(self) -> str:
        return self.expr or self.row.arg

    @property
    def shape(self) -> tuple[Count, ...] | None:
        """`None` of a scalar."""
        return None if self.tensor is None else self.tensor.shape

    @property
    def facts(self) -> TensorFacts | None:
        return None if self.tensor is None else TensorFacts(self.tensor)

    @property
    def tensor(self) -> TensorRow | None:
        return self.row if isinstance(self.row, TensorRow) else None

    @property
    def measured(self) -> TensorRow | None:
        """Its row, where it is a tensor with statistics."""
        return self.tensor if self.tensor is not None and self.tensor.is_measured else None

    @property
    def dtype(self) -> str:
        """Such as `f32`; of a scalar its type."""
        if self.tensor is not None:
            return short_dtype(self.tensor.dtype)
        return self.row.type if isinstance(self.row, ScalarRow) else ""

    @property
    def type(self) -> str:
        """Such as `f32[32, 64]`."""
        return self.dtype if self.tensor is None else f"{self.dtype}{list(self.tensor.shape)}"

    @property
    def value(self) -> str:
        """The text of a scalar."""
        return (self.row.value or "") if isinstance(self.row, ScalarRow) else ""


@printed(
    "position place.launch place.iteration place.kernel place.kind place.scope place.line"
    " place.source_nodes place.origins place.lines place.computes unfinished values"
)
@dataclass(frozen=True)
class ReportedLaunch:
    """A launch as it ran, or the inputs or the outputs of the call: the `position`-th step of its
    run, or of a comparison of two.

    `source` is that of its kernel in the wrapper that was called, empty where it is not known.
    `computes` says that it was given numbers that may be infinite: see
    `rewriter.dump.launched.computes`. `layer` is a part of the model, such as `blocks.2`, empty if
    it is not known; `given` has inputs: the name, the position that wrote it, and the name there.
    """

    position: Count
    place: RecordedLaunch
    values: tuple[ReportedValue, ...]
    difference: LaunchComparison | None = None
    unfinished: bool = False
    source: str = ""
    computes: bool = False
    layer: str = ""
    given: tuple[tuple[str, int, str], ...] = ()

    def __str__(self) -> str:
        return str(self.place) if self.is_launch else f"the {self.place}"

    @property
    def is_launch(self) -> bool:
        return self.place.launch is not None

    @property
    def kernel(self) -> str:
        """The kernel; of the inputs and outputs of a call, what they are."""
        return self.place.kernel if self.is_launch else f"{self.place} of the call"

    @property
    def label(self) -> str:
        """`#12`, or `#12.1` for its second run; `inputs`, `outputs`."""
        if self.place.launch is None:
            return str(self.place)
        return label(self.place.launch, self.place.iteration)

    @property
    def results(self) -> tuple[ReportedValue, ...]:
        """The tensors that it wrote; of the inputs of a call, these."""
        if not self.is_launch:
            return self.values
        return tuple(
            value for value in self.values if value.row.is_result and value.tensor is not None
        )

    @property
    def read(self) -> tuple[ReportedValue, ...]:
        """Its inputs, as far as they were recorded.

        What a launch only reads is the same afterwards, which serves where nothing was read before.
        """
        before = tuple(value for value in self.values if value.row.phase == "before")
        names = {value.row.arg for value in before}
        after = (
            value for value in self.values if value.row.phase == "after" and value.row.role == "in"
        )
        return before + tuple(value for value in after if value.row.arg not in names)


@printed("kind=dump_kind severity text run position launch=index times")
@dataclass(frozen=True)
class ReportedFinding:
    """Something that a reader should know. A "note" is no fault in itself.

    It is about `launch` of the run named `run`; `times` counts the runs with the same finding.
    `text` is in full, `short` its beginning where that says enough for a title.
    """

    kind: str
    severity: Severity
    text: str
    run: str = ""
    launch: ReportedLaunch | None = None
    times: Annotated[int, Meta(ge=1)] = 1
    short: str = ""

    @property
    def dump_kind(self) -> DumpKind:
        """The kind: a comparison, which has others, is not printed as JSON."""
        return cast("DumpKind", self.kind)

    @property
    def position(self) -> Count | None:
        """The step of the run that it is about."""
        return None if self.launch is None else self.launch.position

    @property
    def index(self) -> Count | None:
        """Of the launch in the wrapper; `None` for the inputs of the call."""
        return None if self.launch is None else self.launch.place.launch


@printed("name artifact started graph=names.part findings launches")
@dataclass(frozen=True)
class ReportedRun:
    """One call of a wrapper. The inputs, if recorded, are the first of `launches`.

    `names` are those of the wrapper in the model, `call` is the number of the call, from 1, or 0
    if that is not known.
    """

    name: Annotated[str, Meta(pattern=r"^rank\d+/run\d+$")]
    artifact: str
    started: str
    launches: tuple[ReportedLaunch, ...]
    findings: tuple[ReportedFinding, ...]
    names: Names = NO_NAMES
    call: int = 0

    @property
    def count(self) -> int:
        """How many launches ran, the inputs not counted."""
        return sum(launch.is_launch for launch in self.launches)


@dataclass(frozen=True)
class CallOverview:
    """A call at a glance: how many launches, the largest magnitude of what they wrote, and how many
    elements of it, or of the inputs, are NaN or infinite. An odd one is not as calls should be."""

    run: str
    artifact: str
    call: int = 0  # its number, from 1; 0 if not known
    rows: int = 0
    launches: int = 0
    magnitude: float | None = None
    nan: int = 0
    inf: int = 0
    is_odd: bool = False


@printed("*verdict next")
class FollowedVerdict(NamedTuple):
    """A verdict, and the command that would tell more, empty for none."""

    verdict: Verdict
    next: str


class NextCommand(NamedTuple):
    """The command to type next, and what for, which may be empty."""

    command: str
    why: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. `facts` are pairs of a name and what the dump says.

    `compares` tells a comparison. `calls` are all of the dump, where that has more than `runs`.
    `trends` are there where a wrapper was called several times.
    """

    title: str
    path: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[ReportedFinding, ...]
    runs: tuple[ReportedRun, ...]
    compares: bool = False
    verdicts: tuple[FollowedVerdict, ...] = ()
    calls: tuple[CallOverview, ...] = ()
    trends: Trends | None = None
    next: NextCommand | None = None

    @property
    def found(self) -> bool:
        """Whether there is a fault, which makes the exit code 1."""
        return any(finding.severity == "finding" for finding in self.findings)

    @property
    def measured(self) -> bool:
        """Whether any value was recorded: without one, nothing is known to be right."""
        return any(
            value.tensor is not None and (value.tensor.is_measured or value.tensor.digest)
            for run in self.runs
            for launch in run.launches
            for value in launch.values
        )


# Gives the sources of the kernels of the wrapper that a run called, by name.
Sources = Callable[[RunDump], Mapping[str, str]]
