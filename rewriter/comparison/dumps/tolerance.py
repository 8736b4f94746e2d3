"""How far apart two values may be: by their dtypes, or as the command line says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rewriter.comparison.dumps.types import Tolerance
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.matching import matches

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
    "quint8": _FLOAT32,
    "quint2x4": _FLOAT32,
    "quint4x2": _FLOAT32,
    "qint8": _FLOAT32,
    "qint32": _FLOAT32,
    "float8_e4m3fn": Tolerance(0.125, 1e-5),
    "float8_e4m3fnuz": Tolerance(0.125, 1e-5),
    "float8_e5m2": Tolerance(0.25, 1e-5),
    "float8_e5m2fnuz": Tolerance(0.25, 1e-5),
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


@dataclass(frozen=True)
class Override:
    """The tolerance of the kernels whose name matches a glob."""

    kernels: str
    tolerance: Tolerance


def parse(text: str) -> Override:
    """Parse the value of `--tolerance`: `GLOB=RTOL,ATOL`.

    Raises `RewriterError` if the text has another form.

    >>> parse("extern_kernels.*=1e-3,1e-4")
    Override(kernels='extern_kernels.*', tolerance=Tolerance(rtol=0.001, atol=0.0001))
    """
    kernels, _, numbers = text.rpartition("=")
    parts = numbers.split(",")
    if not kernels or len(parts) != 2:
        raise _bad(text, "it is not of the form GLOB=RTOL,ATOL")
    rtol, atol = (number(part, text) for part in parts)
    return Override(kernels, Tolerance(rtol, atol))


def number(text: str, whole: str = "") -> float:
    """Parse a tolerance: a finite number, not negative. `whole` is the text that it is a part of.

    Raises `RewriterError` if it is not one.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise _bad(whole or text, f"{text.strip()!r} is not a finite number of at least 0")
    return value


@dataclass(frozen=True)
class Tolerances:
    """The tolerance of every tensor of a comparison.

    `rtol` and `atol` replace those of the dtypes, each independently; the last override whose glob
    matches a launch's kernel replaces both. `scaled`: absolute tolerances of dtypes shrink with the
    values, so that gradients of 1e-6 are not equal within 1e-5; replicas are compared so.
    """

    rtol: float | None = None
    atol: float | None = None
    overrides: tuple[Override, ...] = ()
    scaled: bool = False

    def is_asked(self, kernel: str) -> bool:
        """Whether the user gave a tolerance for launches of this kernel."""
        given = self.rtol is not None or self.atol is not None
        return given or any(matches(kernel, [one.kernels]) for one in self.overrides)

    def of(self, kernel: str, dtype_a: str, dtype_b: str) -> Tolerance:
        """The tolerance of a tensor that a launch of this kernel reads or writes."""
        for override in reversed(self.overrides):
            if matches(kernel, [override.kernels]):
                return override.tolerance
        usual = default(dtype_a, dtype_b)
        return Tolerance(
            usual.rtol if self.rtol is None else self.rtol,
            usual.atol if self.atol is None else self.atol,
            self.scaled and self.atol is None,
        )


def _bad(text: str, problem: str) -> RewriterError:
    return RewriterError(
        "bad-tolerance",
        f"bad tolerance {text!r}: {problem}",
        hint="Expected numbers such as 1e-3; --tolerance takes 'GLOB=RTOL,ATOL', for example "
        "'extern_kernels.*=1e-3,1e-5'.",
    )
