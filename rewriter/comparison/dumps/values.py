"""Compares one value in both dumps, by saved tensors or by whatever else was recorded."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import UNSET

from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import Metrics, State, TensorComparison, Tolerance
from rewriter.dump.document_files import corrupt
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import ScalarRow, TensorRow, ValueRow, number
from rewriter.locate.declarations import never_written

# Types whose elements have no numeric value; there may be hashes of them.
_PACKED = ("quint", "qint", "bits", "float4")

# Calls in `torch/distributed/_functional_collectives.py` that return before they communicated.
_COLLECTIVE = re.compile(r"c10d_functional(?:_autograd)?[._]")

# Rows of earlier versions have it if the probe was `hash`.
_SHA256 = "sha256"

BY_STATISTICS = "by statistics alone: another order of the same values would look equal"
BY_HASH = "by hash alone: it tells that the bytes differ, not by how much"


@dataclass(frozen=True)
class RecordedValue:
    """A row of one dump, and the call that it is of."""

    row: ValueRow
    run: RunDump

    @property
    def digest(self) -> tuple[Hashable, str]:
        """The kind of digest that the row has, and the digest; both empty if it has none."""
        row = self.row
        if not isinstance(row, TensorRow):
            return "", ""
        if row.fingerprint and (kind := self.run.manifest.fingerprint):
            return kind, row.fingerprint
        return (_SHA256, row.sha256) if row.sha256 else ("", "")

    @property
    def file(self) -> Path | None:
        name = self.row.file if isinstance(self.row, TensorRow) else ""
        if not name:
            return None
        if name.startswith("/") or ".." in Path(name).parts:
            raise corrupt(self.run.path, f"the file {name!r} of an event is none of this run")
        return self.run.path / name


def compare(
    kernel: str,
    a: RecordedValue,
    b: RecordedValue,
    tolerances: Tolerances,
    *,
    unwritten: str = "",
    exactly: bool = False,
    chosen: bool = False,
) -> TensorComparison:
    """Compare one argument of a launch, by its rows. `unwritten` says why it is known to hold what
    was never written, though the launch only reads it. `exactly`: it has to be the same bits.
    `chosen`: each side compiled code of its own, where a buffer may have another shape by right.

    Saved tensors are not read: the result has the basis "tensors" and no metrics, which `finish`
    adds.
    """
    name = a.run.names.called(a.row.arg)
    blank = TensorComparison(a.row.phase, "unknown", "none", a.row, b.row, in_model=name)
    if (both := blank.tensors) is None:
        return _scalars(blank)
    x, y = both
    if x.phase == "before" and x.role == "out":
        unwritten = unwritten or "a pure output holds nothing before its launch"
    elif x.role != "in":
        unwritten = unwritten or left_unwritten(kernel, x)
    if why := unwritten or _unfinished(kernel, x):
        return replace(blank, note=f"not compared: {why}")
    if why := _not_alike(x, y):
        if chosen and _may_be_padded(x, y):
            return replace(blank, note=f"not compared: {why}; the ranks compiled different code")
        return replace(blank, state="structural", note=why)
    tolerance = Tolerance(0.0, 0.0) if exactly else tolerances.of(x.dtype, y.dtype)
    sizes = [size for row in both if (size := _largest(row)) is not None]
    result = replace(blank, tolerance=tolerance.at(max(sizes, default=1.0)))
    if x.shape != y.shape:
        note = f"{list(x.shape)} against {list(y.shape)}, in row-major order"
        result = replace(result, note=note)
    of, digest = a.digest
    if digest and b.digest == (of, digest) and (x.dtype, x.shape) == (y.dtype, y.shape):
        return _hashes(result, x, y, is_equal=True)  # their files need not be read
    if a.file and b.file and not x.dtype.startswith(_PACKED):
        # A file is missing if the program was killed before it was written.
        files = ((a.file, x.file), (b.file, y.file))
        missing = [name for path, name in files if not os.path.lexists(path)]
        if not missing:
            return replace(result, basis="tensors")
        result = replace(result, note=_also(result, f"not in the dump: {missing[0]}"))
    if digest and b.digest[0] == of and x.dtype == y.dtype:
        is_equal = b.digest[1] == digest
        # With the probe `hash`, values have to be equal byte for byte.
        is_hashed = all("hash" in (value.run.manifest.probes or ()) for value in (a, b))
        is_exact = exactly or of == _SHA256 or is_hashed
        # Every measured value has a fingerprint. If all that is known is that bytes differ, and the
        # user did not ask for that, statistics tell by how much.
        if is_equal or is_exact or not (x.is_measured and y.is_measured):
            return _hashes(result, x, y, is_equal=is_equal)
    if x.is_measured and y.is_measured:
        assert result.tolerance is not None
        state = statistics_state(x, y, result.tolerance)
        return replace(result, state=state, basis="statistics", note=_also(result, BY_STATISTICS))
    return replace(result, note="neither saved nor measured in both dumps")


def finish(comparison: TensorComparison, metrics: Metrics) -> TensorComparison:
    """Complete the comparison of two saved tensors with their metrics."""
    state: State = "equal" if metrics.passes else "numeric"
    if metrics.nan_a or metrics.nan_b or metrics.inf:
        state = "non-finite"
    return replace(comparison, state=state, metrics=metrics)


def _also(result: TensorComparison, note: str) -> str:
    return f"{result.note}; {note}" if result.note else note


def _hashes(
    result: TensorComparison, a: TensorRow, b: TensorRow, *, is_equal: bool
) -> TensorComparison:
    if is_equal:
        return replace(result, state="equal", basis="hashes")
    state: State = "numeric" if (a.nan, a.inf) == (b.nan, b.inf) else "non-finite"
    return replace(result, state=state, basis="hashes", note=_also(result, BY_HASH))


def statistics_state(a: TensorRow, b: TensorRow, tolerance: Tolerance) -> State:
    """Whether every statistic is within what the tolerance of the elements allows."""
    if (a.nan, a.inf) != (b.nan, b.inf):
        return "non-finite"
    largest = max((abs(x) for row in (a, b) if (x := _largest(row)) is not None), default=0.0)
    allowed = tolerance.at(largest).atol + tolerance.rtol * largest
    for name, factor in (("min", 1.0), ("max", 1.0), ("mean", 1.0), ("std", math.sqrt(2))):
        x, y = (number(getattr(row, name)) for row in (a, b))
        if (x is None) != (y is None):
            return "numeric"
        if x is not None and y is not None and not (x == y or abs(x - y) <= factor * allowed):
            return "numeric"
    return "equal"


def _largest(row: TensorRow) -> float | None:
    known = [x for extreme in (row.min, row.max) if (x := number(extreme)) is not None]
    return max(map(abs, known), default=None)


def _scalars(result: TensorComparison) -> TensorComparison:
    if isinstance(result.a, TensorRow) or isinstance(result.b, TensorRow):
        return replace(result, state="structural", note="a tensor on one side, none on the other")
    a, b = (row.value if isinstance(row, ScalarRow) else UNSET for row in (result.a, result.b))
    same = a == b or _same_number(a, b)
    return replace(result, state="equal" if same else "numeric", note="a scalar")


def _same_number(a: Any, b: Any) -> bool:
    """Whether two texts are the same number, such as `1` and `1.0`."""
    for read in (int, float):
        with suppress(TypeError, ValueError):
            return bool(read(a) == read(b))
    return False


def _not_alike(a: TensorRow, b: TensorRow) -> str:
    """Why two tensors cannot be compared element by element; empty if they can."""
    x, y = ([size for size in row.shape if size != 1] for row in (a, b))
    if a.size != b.size or (x != y and sorted(x) == sorted(y)):
        return f"shape {list(a.shape)} against {list(b.shape)}"
    if _family(a.dtype) != _family(b.dtype):
        return f"{a.dtype} against {b.dtype}"
    return ""


def _may_be_padded(a: TensorRow, b: TensorRow) -> bool:
    """Whether one of two tensors may be the other with rows or columns added."""
    if _family(a.dtype) != _family(b.dtype) or len(a.shape) != len(b.shape):
        return False
    return any(
        all(map(operator.le, *shapes)) for shapes in ((a.shape, b.shape), (b.shape, a.shape))
    )


def _family(dtype: str) -> str:
    if dtype.startswith(("float", "bfloat")):
        return "real"
    return "complex" if dtype.startswith("complex") else "whole"


def left_unwritten(kernel: str, row: TensorRow) -> str:
    """Why a result of an operator, or what its backward is given of it, is never written; empty if
    it is."""
    for known in never_written():
        if fnmatchcase(kernel, known["kernel"]) and (
            row.dtype in known.get("dtypes", (row.dtype,))
            and _operator(kernel) in known.get("operators", (_operator(kernel),))
        ):
            return str(known["why"])
    return ""


def left_some_unwritten(kernel: str) -> bool:
    """Whether an operator may leave a result unwritten, by its name."""
    return any(fnmatchcase(kernel, known["kernel"]) for known in never_written())


def _unfinished(kernel: str, row: TensorRow) -> str:
    """Why a value may be incomplete: a collective was started and not waited for."""
    if not _COLLECTIVE.search(kernel):
        return ""
    waits = "wait_tensor" in kernel
    if row.phase == ("before" if waits else "after") and (waits or row.role != "in"):
        return "the collective that writes it may still be running"
    return ""


def _operator(kernel: str) -> str:
    """The operator's name, such as `empty` for `torch.ops.aten.empty.memory_format`."""
    return kernel.removeprefix("torch.ops.").removeprefix("aten.").partition(".")[0]
