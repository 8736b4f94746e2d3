"""The values of a report: what happened in each run, and what is worth saying about it.

Made from a dump or from a comparison of two; shown as a page or as JSON. No I/O here, no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rewriter.core.types import Json
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump.reading import RunDump, label

Number = int | float
Severity = Literal["finding", "note"]


@dataclass(frozen=True)
class Bins:
    """A histogram of the finite elements: equal bins from `low` to `high`, and how many in each.

    `left_out` counts the elements that are not finite.
    """

    low: float
    high: float
    counts: tuple[int, ...]
    left_out: int


@dataclass(frozen=True)
class ValueStatistics:
    """Over the finite elements, as in the dump; `None` where there are too few of them.

    `of` is "magnitude" where the elements are complex, else "value".
    """

    numel: int
    minimum: Number | None
    maximum: Number | None
    mean: Number | None
    std: Number | None
    nan: int
    inf: int
    of: str = "value"

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value; `None` where it is unknown."""
        if self.minimum is None or self.maximum is None:
            return None
        size = max(abs(float(self.minimum)), abs(float(self.maximum)))
        return size if math.isfinite(size) else None


@dataclass(frozen=True)
class ReportedValue:
    """One argument of a launch, read at one phase: "inputs", "before" or "after".

    `dump` is "A" or "B" in a comparison. A scalar has its type in `dtype`, and a `value`. `note`
    says why there is no histogram of a tensor that has a file.
    """

    phase: str
    name: str
    expr: str
    role: str
    dtype: str
    shape: tuple[int, ...] | None
    device: str = ""
    statistics: ValueStatistics | None = None
    value: str = ""
    file: str = ""
    sha256: str = ""
    bins: Bins | None = None
    note: str = ""
    dump: str = ""

    @property
    def is_written(self) -> bool:
        return self.phase == "after" and self.role != "in" and self.shape is not None

    @property
    def type(self) -> str:
        """Such as `f32[32, 64]`."""
        return self.dtype if self.shape is None else f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class TensorDifference:
    """One argument in both dumps. `error` is max |a - b|, `allowed` what the tolerance lets pass
    at the largest element: `atol + rtol * max |b|`; `None` where unknown.

    `estimated` says that `error` is only the largest difference between the two's statistics.
    """

    name: str
    phase: str
    written: bool
    state: str
    basis: str
    note: str
    error: float | None
    allowed: float | None
    estimated: bool
    metrics: Json
    type: str = ""


@dataclass(frozen=True)
class LaunchDifference:
    """How a launch differs between two dumps; see `rewriter.comparison.dumps.types` for the words.

    `only` is "A" or "B" where the other dump has no such launch. `other` says where it stands in
    dump B.
    """

    state: str
    inputs: str
    blame: str
    moved: bool
    only: str
    other: str
    reasons: tuple[str, ...]
    producers: tuple[str, ...]
    tensors: tuple[TensorDifference, ...]

    @property
    def worst(self) -> TensorDifference | None:
        """The result with the largest error in proportion to what is allowed."""
        known = [tensor for tensor in self.tensors if tensor.written and tensor.error is not None]
        return max(known, key=_excess, default=None)


def _excess(tensor: TensorDifference) -> float:
    assert tensor.error is not None
    return tensor.error / tensor.allowed if tensor.allowed else tensor.error * 1e300


@dataclass(frozen=True)
class ReportedLaunch:
    """A launch as it ran: the `position`-th step of its run. `index` is `None` for
    the inputs and the outputs of the call, whose `kernel` says so in words. `source` is that of its
    kernel in the wrapper that was called, empty where it is not known. `computes` says that it was
    given numbers that may be infinite: see `rewriter.dump.dataflow.computes`.
    """

    position: int
    index: int | None
    iteration: int
    kernel: str
    kind: str
    scope: str
    line: int
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    readings: tuple[ReportedValue, ...]
    difference: LaunchDifference | None = None
    unfinished: bool = False
    source: str = ""
    computes: bool = False

    def __str__(self) -> str:
        return f"the {self.label}" if self.index is None else f"{self.label} {self.kernel}"

    @property
    def label(self) -> str:
        """`#12`, or `#12.1` for its second run; `inputs`, `outputs`."""
        if self.index is None:
            return self.kernel.partition(" ")[0]
        return label(self.index, self.iteration)

    @property
    def results(self) -> tuple[ReportedValue, ...]:
        """What it wrote; of the inputs of a call, these."""
        if self.index is None:
            return self.readings
        return tuple(reading for reading in self.readings if reading.is_written)

    @property
    def read(self) -> tuple[ReportedValue, ...]:
        """What it was given, as far as that was recorded.

        What a launch only reads is the same afterwards, which serves where nothing was read before.
        """
        before = tuple(reading for reading in self.readings if reading.phase == "before")
        return before or tuple(
            reading
            for reading in self.readings
            if reading.phase == "after" and reading.role == "in"
        )


@dataclass(frozen=True)
class Finding:
    """Something that a reader should know. A "note" is no fault in itself.

    It is about `launch` of the run named `run`; `times` counts the runs with the same finding.
    `text` is in full, `short` its beginning where that says enough for a title.
    """

    kind: str
    severity: Severity
    text: str
    run: str = ""
    launch: ReportedLaunch | None = None
    times: int = 1
    short: str = ""


@dataclass(frozen=True)
class ReportedRun:
    """One call of a wrapper. The inputs, if recorded, are the first of `launches`."""

    name: str
    artifact: str
    started: str
    launches: tuple[ReportedLaunch, ...]
    findings: tuple[Finding, ...]

    @property
    def count(self) -> int:
        """How many launches ran, the inputs not counted."""
        return sum(launch.index is not None for launch in self.launches)


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. `facts` are pairs of a name and what the dump says.

    `compares` tells a comparison. `verdicts` come with the command that would tell more, empty for
    none.
    """

    title: str
    path: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    runs: tuple[ReportedRun, ...]
    compares: bool = False
    verdicts: tuple[tuple[Verdict, str], ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is a fault, which makes the exit code 1."""
        return any(finding.severity == "finding" for finding in self.findings)

    @property
    def measured(self) -> bool:
        """Whether any value was recorded: without one, nothing is known to be right."""
        return any(
            reading.statistics is not None or reading.sha256
            for run in self.runs
            for launch in run.launches
            for reading in launch.readings
        )


# Gives the sources of the kernels of the wrapper that a run called, by name.
Sources = Callable[[RunDump], Mapping[str, str]]
# Gives the histogram of a tensor that the dump of a run, in a directory, has in a file; text says
# why there is none.
Histogram = Callable[[Path, ReportedValue], Bins | str | None]
