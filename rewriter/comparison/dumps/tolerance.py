"""How far apart two values may be: by their dtypes, or as the command line says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rewriter.comparison.dumps.types import Tolerance
from rewriter.core.dtypes import ROUNDING
from rewriter.core.errors import RewriterError

_FLOAT32 = Tolerance(1.3e-6, 1e-5)

# Those of `torch.testing.assert_close` (`_DTYPE_PRECISIONS` in torch/testing/_comparison.py), which
# compares 8-bit types bit by bit. Here these get their eps, the step at 1: two results that were
# rounded from both sides of a rounding boundary are one step apart, and the 1.6e-2 of bfloat16 also
# allows two of its steps of 7.8e-3.
_BY_DTYPE = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": _FLOAT32,
    "float64": Tolerance(1e-7, 1e-7),
    "complex32": Tolerance(1e-3, 1e-5),
    "complex64": _FLOAT32,
    "complex128": Tolerance(1e-7, 1e-7),
    **dict.fromkeys(("quint8", "quint2x4", "quint4x2", "qint8", "qint32"), _FLOAT32),
    **{
        dtype: Tolerance(2 * rounding, 1e-5)
        for dtype, rounding in ROUNDING.items()
        if dtype.startswith("float8")
    },
}
# Also for float8_e8m0fnu, whose values are powers of 2: one step up doubles a value.
_EXACT = Tolerance(0.0, 0.0)


def default(dtype_a: str, dtype_b: str) -> Tolerance:
    """The looser of the two dtypes' tolerances, named as in a dump; integers and bool are exact.

    >>> default("bfloat16", "float32")
    Tolerance(rtol=0.016, atol=1e-05)
    """
    a, b = (_BY_DTYPE.get(dtype, _EXACT) for dtype in (dtype_a, dtype_b))
    return Tolerance(max(a.rtol, b.rtol), max(a.atol, b.atol))


def number(text: str) -> float:
    """Parse a tolerance: a finite number, not negative. Raises `RewriterError` if it is not one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise RewriterError(
            "bad-tolerance",
            f"bad tolerance {text!r}: it is not a finite number of at least 0",
            hint="Expected a number such as 1e-3.",
        )
    return value


@dataclass(frozen=True)
class Tolerances:
    """The tolerance of every tensor of a comparison.

    `rtol` and `atol` replace those of the dtypes, each independently. `scaled`: absolute tolerances
    of dtypes shrink with the values, so that gradients of 1e-6 are not equal within 1e-5; replicas
    are compared so.
    """

    rtol: float | None = None
    atol: float | None = None
    scaled: bool = False

    def of(self, dtype_a: str, dtype_b: str) -> Tolerance:
        """The tolerance of a tensor that has these types in the two dumps."""
        usual = default(dtype_a, dtype_b)
        return Tolerance(
            usual.rtol if self.rtol is None else self.rtol,
            usual.atol if self.atol is None else self.atol,
            self.scaled and self.atol is None,
        )
