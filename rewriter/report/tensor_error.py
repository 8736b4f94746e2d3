"""How far the values of two dumps are apart, and how far they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rewriter.comparison.dumps.types import TensorComparison
from rewriter.dump.rows import TensorRow, known


@dataclass(frozen=True)
class TensorError:
    """`error` is max |a - b|, `allowed` what the tolerance lets pass at the largest element:
    `atol + rtol * max |b|`; `None` where unknown.

    `estimated` says that `error` is only the largest difference between the two's statistics.
    """

    error: float | None
    allowed: float | None
    estimated: bool


def error_of(tensor: TensorComparison) -> TensorError:
    """The error of an argument that both dumps have."""
    metrics = tensor.metrics
    error = _finite(metrics.max_abs.error) if metrics and metrics.max_abs else None
    estimated = error is None and tensor.basis == "statistics"
    if estimated and tensor.tensors is not None:
        error = _statistics_error(*tensor.tensors)
    elif error is None and (tensor.state == "equal" or (metrics and metrics.identical)):
        error = 0.0
    return TensorError(error, _allowed(tensor), estimated)


def _statistics_error(a: TensorRow, b: TensorRow) -> float | None:
    """The largest difference between the statistics: what the error is at least, about."""
    pairs = [(a.min, b.min), (a.max, b.max), (a.mean, b.mean), (a.std, b.std)]
    both = [(known(of_a), known(of_b)) for of_a, of_b in pairs]
    errors = [
        _finite(abs(float(of_a) - float(of_b)))
        for of_a, of_b in both
        if of_a is not None and of_b is not None
    ]
    return max((error for error in errors if error is not None), default=None)


def _allowed(tensor: TensorComparison) -> float | None:
    if tensor.tolerance is None or tensor.tensors is None:
        return None
    _, row = tensor.tensors
    extremes = [known(row.min), known(row.max)]
    size = max((abs(float(x)) for x in extremes if x is not None), default=0.0)
    if tensor.allowed is not None:  # by rounding: the tolerance did not decide
        return _finite(tensor.allowed * size)
    return _finite(tensor.tolerance.atol + tensor.tolerance.rtol * size)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
