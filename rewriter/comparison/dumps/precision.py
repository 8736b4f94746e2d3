"""Tells rounding from faults between runs of different precision, launch by launch.

If a sum is rounded, elements near 0 exceed any relative tolerance, and errors add up along a model.
Between float32 and bfloat16 a fixed tolerance would blame the first product of a correct model, and
accept a constant that is off by 1 %. So a launch is judged by the error of its results as a whole,
given the errors of its operands. Errors are root mean squares, relative to that of the value in B.

**Size.** To first order, errors of operands add up: a product has the sum of the relative errors of
its factors, a sum the absolute errors of its terms. A launch may leave an error of

    sum over operands of condition * error  +  unit * sqrt(1 + log2 length)

- `condition` is how many times the function may multiply a relative error, learned from the values:
  how much larger the operand is than the result (a sum whose terms cancel keeps their absolute
  error), how much larger it is than its own spread if a mean is subtracted (normalization), and its
  largest absolute value under an exponential (whose relative error is the absolute error of its
  argument). It is at least 1.
- `unit` is the unit roundoff of the coarsest type that the launch reads or writes.
- `length` is the number of terms that an element of the result is a sum of, by the sizes: kernels
  accumulate in float32 and may add partial sums in the lower type, pairwise.

**Direction.** Rounding has no direction: it makes a result neither larger nor smaller as a whole. A
wrong factor does, and its direction shows long before its size. The share of the error along the
result (`gain`) and along a constant (`shift`) may be as large as the operands explain, plus `1/2`
of the rest of the error, or `3/sqrt(n)` for few elements: three times what n independent errors
leave. Half, because a value that is added to many elements, such as the bias of a channel, was
rounded once: in correct models with up to 16 channels, up to a quarter was seen. If hardly any
error remains besides the direction, the values are a few different ones, rounded alike, and `unit`
is allowed.

A launch whose results exceed these limits is named. If all stay within, rounding explains the
differences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rewriter.comparison.dumps.blame import behind, worst
from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import DIFFERS, LaunchComparison, State, TensorComparison
from rewriter.core.dtypes import ROUNDING
from rewriter.dump.dataflow import FlowNode, ValueOrigin
from rewriter.dump.launched import OUTPUTS, RecordedLaunch
from rewriter.dump.rows import TensorRow, finite

_HALF = 0.5  # of the error without a direction
_SIGMAS = 3.0

_EXPONENTIAL = re.compile(r"softmax|logsumexp|(?:^|[_.])(?:exp(?:2|m1)?|pow|sinh|cosh)(?:$|[_.\d])")
_CENTRED = re.compile(r"norm|var|std|sub|softmax")
_PRODUCT = re.compile(r"mm|conv|linear|attention|einsum|matmul")


@dataclass(frozen=True)
class Error:
    """The error of a value of A relative to B, as above. `scale` is the root mean square of B,
    `peak` its largest absolute value, `spread` its standard deviation."""

    size: float
    gain: float
    shift: float
    scale: float
    peak: float
    spread: float
    numel: int

    @property
    def rest(self) -> float:
        """The error without a direction."""
        return math.sqrt(max(0.0, self.size**2 - max(self.gain**2, self.shift**2)))


def lower(launches: Iterable[LaunchComparison]) -> str:
    """The coarsest type among floating-point values that have a different type in the other dump;
    empty if there is none: then both runs compute in the same precision."""
    dtypes = {
        dtype
        for launch in launches
        for tensor in launch.tensors
        if len(set(tensor.dtypes)) > 1
        for dtype in tensor.dtypes
    }
    return max(dtypes & ROUNDING.keys(), key=ROUNDING.__getitem__, default="")


def explain(
    launches: Sequence[LaunchComparison], nodes: Sequence[FlowNode], tolerances: Tolerances
) -> list[LaunchComparison]:
    """The launches, with states that account for rounding, if the runs differ in precision.

    `nodes` are the steps of dump A. Only saved values are judged, since too little is known about
    others. A tolerance that the user gave takes precedence.
    """
    coarsest = ROUNDING.get(lower(launches), 0.0)
    if not coarsest or tolerances.rtol is not None or tolerances.atol is not None:
        return list(launches)
    judge = _Judge(nodes, coarsest)
    return [judge.read(launch) if launch.matched else launch for launch in launches]


@dataclass(frozen=True)
class _Origin:
    """What a value was computed from: errors, the launches in between, and whether one of the
    values is wrong."""

    errors: tuple[Error, ...]
    between: tuple[RecordedLaunch, ...]
    wrong: bool


class _Judge:
    """Judges the launches in the order of A."""

    def __init__(self, nodes: Sequence[FlowNode], coarsest: float) -> None:
        self._nodes, self._coarsest = nodes, coarsest
        self._errors: dict[ValueOrigin, Error] = {}  # of results
        self._states: dict[ValueOrigin, State] = {}

    def read(self, launch: LaunchComparison) -> LaunchComparison:
        if launch.place.is_inputs:
            self._keep(launch)
            return launch
        node = self._nodes[launch.place.step]
        reads = tuple(self._as_made(node, tensor) for tensor in launch.reads)
        inputs = worst([tensor.state for tensor in reads])
        if launch.place.kernel == OUTPUTS:
            return replace(launch, inputs=inputs, state=inputs, reads=reads)
        origin = self._given(node, reads)
        unit = max((_unit(tensor) for tensor in launch.tensors), default=0.0)
        unit = max(unit, self._coarsest * len(origin.between))
        wrong, places = origin.wrong or inputs in DIFFERS, (launch.place, *origin.between)
        origin = replace(origin, between=places, wrong=wrong)
        judged = [self._judged(tensor, origin, unit) for tensor in launch.results]
        results = tuple(tensor for tensor, _ in judged)
        state = worst([tensor.state for tensor in results])
        reasons = (*launch.reasons, *(f"{tensor.name}: {why}" for tensor, why in judged if why))
        launch = replace(launch, reads=reads, results=results, inputs=inputs, state=state)
        launch = replace(launch, reasons=reasons)
        self._keep(launch)
        return launch

    def _judged(
        self, tensor: TensorComparison, origin: _Origin, unit: float
    ) -> tuple[TensorComparison, str]:
        """A value with its state, and why rounding does not explain it."""
        error = _error(tensor)
        if error is None or tensor.state not in ("equal", "numeric"):
            return tensor, ""
        if error.size == 0:
            return replace(tensor, state="equal"), ""
        words = (word for place in origin.between for word in (place.kernel, *place.origins))
        allowed = _allowed(error, origin.errors, unit, " ".join(words))
        if error.size > allowed:
            why = f"an error of {error.size:.2g}, where what it read and rounding explain"
            return replace(tensor, state="numeric", allowed=allowed), f"{why} {allowed:.2g}"
        if why := _directed(error, origin.errors, unit):
            return replace(tensor, state="numeric"), why
        # A wrong value does not become right because this launch did not make it worse.
        state: State = "numeric" if origin.wrong and tensor.state in DIFFERS else "rounding"
        return replace(tensor, state=state, allowed=allowed), ""

    def _as_made(self, node: FlowNode, tensor: TensorComparison) -> TensorComparison:
        """A value that was read, with the state that it had when it was made."""
        error = _error(tensor)
        if error is None or tensor.state not in ("equal", "numeric"):
            return tensor
        if error.size == 0:
            return replace(tensor, state="equal")
        sources = node.given.get(tensor.a.arg, ())
        known = [self._states[source] for source in sources if source in self._states]
        if known and len(known) == len(sources):
            made = worst(known)
            was = [self._errors[source] for source in sources if source in self._errors]
            if made in DIFFERS or not was:
                return replace(tensor, state=made) if made != "unknown" else tensor
            # It may have been overwritten since, or be from a different launch in the other run.
            is_wrong = error.size > _allowed(error, was, _unit(tensor), "")
            return replace(tensor, state="numeric" if is_wrong else "rounding")
        origin = self._behind(sources)
        if not origin.errors:
            return tensor
        unit = max(_unit(tensor), self._coarsest * len(origin.between))
        judged, why = self._judged(tensor, origin, unit)
        return replace(judged, note=why) if why else judged

    def _keep(self, launch: LaunchComparison) -> None:
        for tensor in launch.results:
            source = self._nodes[launch.place.step].result(tensor.a.arg)
            if source is None or tensor.state == "unknown":
                continue
            self._states[source] = tensor.state
            if error := _error(tensor):
                self._errors[source] = error

    def _given(self, node: FlowNode, reads: Sequence[TensorComparison]) -> _Origin:
        """A launch's inputs; for those that were not compared, what they were computed from."""
        compared = {tensor.a.arg: error for tensor in reads if (error := _error(tensor))}
        rest = [x for name, sources in node.given.items() if name not in compared for x in sources]
        behind = self._behind(rest)
        return replace(behind, errors=(*compared.values(), *behind.errors))

    def _behind(self, sources: Iterable[ValueOrigin]) -> _Origin:
        """What values were computed from, back through launches without a counterpart."""
        found, between = behind(self._nodes, sources, self._states)
        return _Origin(
            tuple(self._errors[x] for x in found if x in self._errors),
            tuple(self._nodes[step].place for step in between),
            any(self._states[x] in DIFFERS for x in found),
        )


def _allowed(error: Error, operands: Sequence[Error], unit: float, text: str) -> float:
    """The size of error that operands and rounding explain."""
    carried = sum(_condition(operand, error, text) * operand.size for operand in operands)
    return carried + unit * math.sqrt(1 + math.log2(_length(error, operands, text)))


def _directed(error: Error, operands: Sequence[Error], unit: float) -> str:
    """Why an error has a direction that operands and rounding do not explain; empty if not."""
    noise = max([error.rest, *(operand.rest for operand in operands)])
    part = max(_HALF, _SIGMAS / math.sqrt(error.numel)) * noise
    if error.rest < unit / 4:
        part += unit
    for name, share, brought in (
        ("larger", error.gain, [operand.gain for operand in operands]),
        (
            "shifted",
            error.shift,
            [operand.shift * operand.scale / error.scale for operand in operands],
        ),
    ):
        least, most = sum(min(x, 0.0) for x in brought), sum(max(x, 0.0) for x in brought)
        if not least - part <= share <= most + part:
            return (
                f"on the whole {name} by {share:.2%}, where what it read and rounding explain "
                f"{least - part:.2%} to {most + part:.2%}"
            )
    return ""


def _condition(operand: Error, result: Error, text: str) -> float:
    factors = [1.0, operand.scale / result.scale]
    if _CENTRED.search(text) and operand.spread:
        factors.append(operand.scale / operand.spread)
    if _EXPONENTIAL.search(text):
        factors.append(operand.peak)
    return max(factors)


def _length(result: Error, operands: Sequence[Error], text: str) -> float:
    """The approximate number of terms that an element of the result is a sum of."""
    sizes = sorted((operand.numel for operand in operands), reverse=True)
    lengths = [1.0]
    if sizes and result.numel:
        lengths.append(sizes[0] / result.numel)
    if len(sizes) > 1 and result.numel and _PRODUCT.search(text):
        lengths.append(math.sqrt(sizes[0] * sizes[1] / result.numel))
    return max(lengths)


def _error(tensor: TensorComparison) -> Error | None:
    metrics = tensor.metrics
    if tensor.state == "non-finite" or not any(dtype in ROUNDING for dtype in tensor.dtypes):
        return None
    if metrics is None:
        return _no_error(tensor)
    if not (metrics.rms_b > 0 and math.isfinite(metrics.rms_b)) or not math.isfinite(metrics.rms):
        return None
    scale, row = metrics.rms_b, tensor.b
    extremes = (finite(row.min), finite(row.max)) if isinstance(row, TensorRow) else ()
    sizes = [abs(float(x)) for x in extremes if x is not None]
    # If it was not measured, the peak is that of a normal distribution.
    usual = scale * math.sqrt(2 * math.log(max(2, metrics.numel)))
    return Error(
        size=metrics.rms / scale,
        gain=metrics.gain,
        shift=(metrics.mean_a - metrics.mean_b) / scale,
        scale=scale,
        peak=max(sizes, default=usual),
        spread=math.sqrt(max(0.0, scale**2 - metrics.mean_b**2)),
        numel=metrics.numel,
    )


def _no_error(tensor: TensorComparison) -> Error | None:
    """The error of a value whose files were not read, since its digests are equal."""
    row = tensor.b
    if not tensor.identical or not isinstance(row, TensorRow):
        return None
    mean, spread, peak = finite(row.mean), finite(row.std), row.magnitude
    if mean is None or spread is None or peak is None or not (scale := math.hypot(mean, spread)):
        return None
    return Error(0.0, 0.0, 0.0, scale, peak, float(spread), row.size)


def _unit(tensor: TensorComparison) -> float:
    return max((ROUNDING.get(dtype, 0.0) for dtype in tensor.dtypes), default=0.0)
