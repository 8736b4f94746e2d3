"""The types that describe how two dumps differ. No I/O; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from rewriter.core.documents import Count, Number
from rewriter.core.printed import printed
from rewriter.dump.documents import Manifest
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.rows import RowPhase, TensorRow, ValueRow

# `rounding`: in another precision, and no further off than rounding and what was read explain.
# `numeric`: outside the tolerance, or further off than that.
# `non-finite`: NaN or an infinity on one side.
# `structural`: shapes or types differ, or there is no counterpart. `unknown`: not compared.
State = Literal["equal", "rounding", "numeric", "non-finite", "structural", "unknown"]
Basis = Literal["tensors", "statistics", "hashes", "none"]
Outcome = Literal["equal", "rounding", "different"]
Blame = Literal["culprit", "downstream"] | None

DIFFERS: tuple[State, ...] = ("numeric", "non-finite", "structural")


@printed("rtol atol")
@dataclass(frozen=True)
class Tolerance:
    """`|a - b| <= atol + rtol * |b|`, as `torch.testing.assert_close`; b is the expected one.

    With `scaled`, `atol` is that of tensors whose largest element is 1, and less for smaller ones.
    """

    rtol: Number
    atol: Number
    scaled: bool = False

    def at(self, largest: float) -> Tolerance:
        """The tolerance for tensors whose largest element has this magnitude."""
        if not self.scaled:
            return self
        return Tolerance(self.rtol, self.atol * min(1.0, largest))


@dataclass(frozen=True)
class Extreme:
    """The element where an error is largest: its index, and the values that differ there."""

    error: Number
    index: tuple[Count, ...]
    a: Number
    b: Number


@dataclass(frozen=True)
class Metrics:
    """How two tensors of one shape differ, element by element; errors are over finite pairs.

    `max_rel` is relative to b and over its elements other than 0; both maxima are `None` if there
    is no such element. `mean_abs` and `rms` are of the error, `mean_a` and `mean_b` of the values.
    `cosine` is of the angle between the two as vectors. `snr` is
    `10 log10(sum b**2 / sum (a - b)**2)` in dB: it rises as the error falls, and is infinite for
    equal tensors. `ulp` is the largest distance in units of the last place, of the coarser of the
    two floating-point types; `None` for other types. `rms_b` is the root mean square of b. `gain`
    is how much larger a is than b as a whole, `sum (a - b) b / sum b**2`: rounding leaves it near
    0, a wrong factor does not; NaN if b is 0 and a is not.

    `mismatched` counts the elements outside the tolerance, including non-finite ones that differ.
    `nan_a` counts NaN only in a, `nan_b` only in b, `inf` infinities that the other side lacks;
    `nonfinite` is the first such element. NaN equals NaN, an infinity itself.

    `atol_needed` is the smallest absolute tolerance under which the finite elements pass without a
    relative one, `rtol_needed` the reverse (infinite if b is 0 and a is not).
    """

    numel: Count
    identical: bool  # bit for bit
    max_abs: Extreme | None
    max_rel: Extreme | None
    mean_abs: Number
    rms: Number
    mean_a: Number
    mean_b: Number
    cosine: Number
    snr: Number
    rms_b: Number
    gain: Number
    ulp: Count | None
    mismatched: Count
    nan_a: Count
    nan_b: Count
    inf: Count
    nonfinite: Extreme | None
    atol_needed: Number
    rtol_needed: Number

    @property
    def passes(self) -> bool:
        return self.mismatched == 0


@printed("phase state basis note a=a.of_value b=b.of_value tolerance metrics allowed")
@dataclass(frozen=True)
class TensorComparison:
    """One argument of a launch in both dumps. `a` and `b` are its rows of the events files.

    `basis` says what was compared, `note` why nothing was, or what the comparison cannot tell.
    Only the basis "tensors" has `metrics`. Between runs of different precision, `allowed` is the
    error (root mean square relative to that of b) that rounding and the inputs of the launch
    explain; see `rewriter.comparison.dumps.precision`.
    """

    phase: RowPhase
    state: State
    basis: Basis
    a: ValueRow
    b: ValueRow
    tolerance: Tolerance | None = None
    metrics: Metrics | None = None
    note: str = ""
    allowed: float | None = None
    in_model: str = ""  # what the model calls it, or else its own name

    @property
    def name(self) -> str:
        """The argument's name in the first dump."""
        return self.a.arg

    @property
    def tensors(self) -> tuple[TensorRow, TensorRow] | None:
        """Both rows, if both are of tensors."""
        a, b = self.a, self.b
        return (a, b) if isinstance(a, TensorRow) and isinstance(b, TensorRow) else None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of both, if they are tensors."""
        return tuple(row.dtype for row in (self.a, self.b) if isinstance(row, TensorRow))

    @property
    def identical(self) -> bool:
        """Whether both are known to be equal bit for bit, as equal scalars are."""
        if self.metrics is not None:
            return self.metrics.identical
        is_scalar = not isinstance(self.a, TensorRow)
        return self.state == "equal" and (self.basis == "hashes" or is_scalar)

    @property
    def apart(self) -> bool:
        """Whether both are known not to be equal bit for bit."""
        if self.metrics is not None:
            return not self.metrics.identical
        if (both := self.tensors) is None:
            return False
        a, b = (row.digest for row in both)
        return bool(a and b) and a != b

    @property
    def written(self) -> bool:
        """Whether the launch is known to write it; the inputs of a call count as its results."""
        return self.phase == "inputs" or self.a.is_result


@printed(
    "a b state inputs blame moved reasons lone=unmatched producers=producer_steps reads results"
)
@dataclass(frozen=True)
class LaunchComparison:
    """One launch of both dumps, or of one: then `a` or `b` is `None`.

    `reads` are its inputs; `results` are what it writes, and arguments that it should only read, if
    these changed. `state` is the worst of the results, `inputs` that of the reads. `blame` tells a
    launch that went wrong itself from one whose inputs were wrong, because of `producers`: launches
    of dump A. `reasons` are sentences for people. `unmatched` are results, or inputs of the call,
    that only one side has, such as "A buf3".
    """

    a: RecordedLaunch | None
    b: RecordedLaunch | None
    state: State
    inputs: State
    blame: Blame = None
    moved: bool = False
    reads: tuple[TensorComparison, ...] = ()
    results: tuple[TensorComparison, ...] = ()
    producers: tuple[RecordedLaunch, ...] = ()
    reasons: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    @property
    def place(self) -> RecordedLaunch:
        """Where it ran in the first dump, or in the second if only there."""
        place = self.a or self.b
        assert place is not None
        return place

    @property
    def both(self) -> tuple[RecordedLaunch, RecordedLaunch]:
        """Where a launch that both dumps have ran in each."""
        assert self.a is not None
        assert self.b is not None
        return self.a, self.b

    @property
    def producer_steps(self) -> tuple[Count, ...]:
        """None where a launch of B alone made the difference."""
        return tuple(place.step for place in self.producers)

    @property
    def matched(self) -> bool:
        return self.a is not None and self.b is not None

    @property
    def tensors(self) -> tuple[TensorComparison, ...]:
        return self.reads + self.results


@printed("a b")
@dataclass(frozen=True)
class RunComparison:
    """One call of a wrapper in both dumps, launch by launch, in the order of dump A."""

    a: str
    b: str
    launches: tuple[LaunchComparison, ...]


@dataclass(frozen=True)
class Comparison:
    """Two dumps. `unpaired` are runs of one dump without a counterpart, such as "A rank0/run1";
    `cut` are those whose record ends within a line.

    `a` and `b` are the dumps' paths, `manifest_a` and `manifest_b` their manifests.
    """

    a: Path
    b: Path
    manifest_a: Manifest
    manifest_b: Manifest
    runs: tuple[RunComparison, ...]
    unpaired: tuple[str, ...]
    cut: tuple[str, ...] = ()

    @cached_property
    def launches(self) -> tuple[LaunchComparison, ...]:
        """Every launch of every run, in order."""
        return tuple(launch for run in self.runs for launch in run.launches)

    @cached_property
    def culprits(self) -> tuple[LaunchComparison, ...]:
        """The launches that went wrong themselves, in the order in which they ran."""
        return tuple(launch for launch in self.launches if launch.blame == "culprit")

    @cached_property
    def unmatched(self) -> tuple[LaunchComparison, ...]:
        """The launches of one dump without a counterpart in the other."""
        return tuple(launch for launch in self.launches if not launch.matched)

    @cached_property
    def equal(self) -> bool:
        """Whether everything that could be compared is equal within its tolerance, or within what
        rounding explains."""
        good = ("equal", "rounding", "unknown")
        return all(
            launch.state in good and launch.inputs in good
            for launch in self.launches
            if launch.matched
        )

    @cached_property
    def rounded(self) -> bool:
        """Whether runs of different precision are equal only with what rounding explains."""
        states = {state for x in self.launches if x.matched for state in (x.state, x.inputs)}
        return self.equal and "rounding" in states
