"""What is known about two tensors after some of their elements, and what follows from that."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from rewriter.comparison.dumps.types import Extreme, Metrics


@dataclass
class Totals:
    """The facts about the elements so far. Sums are over the finite pairs. The index of an extreme
    is its position in memory order; its error is an int between integers."""

    numel: int = 0
    finite: int = 0
    sum_a: float = 0.0
    sum_b: float = 0.0
    sum_error: float = 0.0
    square_a: float = 0.0
    square_b: float = 0.0
    square_error: float = 0.0
    product: float = 0.0
    mismatched: int = 0
    nan_a: int = 0
    nan_b: int = 0
    inf: int = 0
    differ: int = 0  # blocks that are not the same bit for bit
    unscaled: int = 0  # blocks in which b is 0 and a is not
    ulp: int | None = None
    max_abs: Extreme | None = None
    max_rel: Extreme | None = None
    nonfinite: Extreme | None = None

    def add(self, later: Totals) -> None:
        """Add the facts about elements that come after these."""
        mine, other = vars(self), vars(later)
        for name in _ADDED:
            mine[name] += other[name]
        self.max_abs = _larger(self.max_abs, later.max_abs)
        self.max_rel = _larger(self.max_rel, later.max_rel)
        self.nonfinite = self.nonfinite or later.nonfinite
        if self.ulp is None or (later.ulp is not None and later.ulp > self.ulp):
            self.ulp = later.ulp

    def metrics(self, shape: tuple[int, ...], order: tuple[int, ...]) -> Metrics:
        """The metrics of a tensor with its dimensions in this memory order."""
        count = self.finite or math.nan

        def extreme(one: Extreme | None) -> Extreme | None:
            return one and replace(one, index=_index(one.index[0], shape, order))

        return Metrics(
            numel=self.numel,
            identical=not self.differ,
            max_abs=extreme(self.max_abs),
            max_rel=extreme(self.max_rel),
            mean_abs=self.sum_error / count,
            rms=math.sqrt(self.square_error / count),
            mean_a=self.sum_a / count,
            mean_b=self.sum_b / count,
            cosine=self._cosine(),
            snr=self._snr(),
            rms_b=math.sqrt(self.square_b / count),
            gain=self._gain(),
            ulp=self.ulp,
            mismatched=self.mismatched,
            nan_a=self.nan_a,
            nan_b=self.nan_b,
            inf=self.inf,
            nonfinite=extreme(self.nonfinite),
            atol_needed=self.max_abs.error if self.max_abs else 0.0,
            rtol_needed=math.inf if self.unscaled else self.max_rel.error if self.max_rel else 0.0,
        )

    def _cosine(self) -> float:
        if self.mismatched and not self.finite:
            return math.nan
        a, b = math.sqrt(self.square_a), math.sqrt(self.square_b)
        if a == 0 or b == 0:
            return 1.0 if a == b else 0.0
        if self.square_error > self.square_b / 4:
            return min(1.0, max(-1.0, self.product / a / b))
        # By the law of cosines: for nearly equal vectors, the product loses the digits in which the
        # cosine differs from 1.
        return 1 - max(0.0, self.square_error - (a - b) ** 2) / (2 * a * b)

    def _gain(self) -> float:
        if self.square_error == 0:
            return 0.0 if self.finite or not self.mismatched else math.nan
        if not 0 < self.square_b < math.inf:
            return math.nan
        return (self.product - self.square_b) / self.square_b

    def _snr(self) -> float:
        if self.mismatched and not self.finite:
            return math.nan
        if self.square_error == 0:
            # The square of a very small error is 0, too.
            return math.nan if self.max_abs and self.max_abs.error else math.inf
        if self.square_b == 0:
            return -math.inf
        quotient = self.square_b / self.square_error
        # The squares of very large numbers are infinite, and tell nothing.
        return 10 * math.log10(quotient) if 0 < quotient < math.inf else math.nan


_ADDED = tuple(field.name for field in fields(Totals) if field.type in ("int", "float"))


def _larger(earlier: Extreme | None, later: Extreme | None) -> Extreme | None:
    known = (extreme for extreme in (earlier, later) if extreme is not None)
    return max(known, key=lambda x: x.error, default=None)


def _index(position: int, shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    index = [0] * len(shape)
    for dimension in reversed(order):
        position, index[dimension] = divmod(position, shape[dimension])
    return tuple(index)
