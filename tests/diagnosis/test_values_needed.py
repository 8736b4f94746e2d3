"""Which calls and which launches of a program are recorded with all values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dumps
from rewriter.diagnosis import nonfinite, values_needed
from rewriter.dump.reading import open_dump


def _dump(tmp_path: Path, calls: int, *, nan: int = -1, **fields: Any) -> Path:
    """Calls of 128 bytes for each of two results and an input."""
    for call in range(calls):
        value = dumps.value
        made = [value("buf0", "out", nan=4 * (call == nan))], [value("buf1", "out", **fields)]
        launches = [dumps.launch(n, f"cpp_{n}", [], made[n], when="after") for n in (0, 1)]
        dumps.write(tmp_path / "x.dump", launches, inputs=[value("x")], run=call, call=call)
    return tmp_path / "x.dump"


@pytest.mark.parametrize(
    ("calls", "limit", "nan", "expected"),
    [
        (1, 1 << 30, -1, "0"),
        (3, 1 << 30, -1, "0,1,2"),
        (9, 1 << 30, -1, "0,1,8"),
        (9, 2 * 4 * 3 * 128, -1, "0,8"),
        (9, 1, -1, "0"),
        (9, 1 << 30, 6, "6"),
    ],
)
def test_the_first_calls_and_the_last_as_far_as_they_fit_or_that_with_the_nan(
    calls: int, limit: int, nan: int, expected: str, tmp_path: Path
) -> None:
    dump = _dump(tmp_path, calls, nan=nan)
    verdicts = nonfinite.search(dump).verdicts
    assert values_needed.calls(dump, limit, verdicts) == expected


def test_launches_that_did_not_fit_are_recorded_once_more(tmp_path: Path) -> None:
    dump = _dump(tmp_path / "full", 1, unsaved="--max-bytes was reached")
    assert values_needed.unsaved(dump) == range(1, 2)
    assert not values_needed.is_saved(dump, "rank0/run0", 1, 0)
    other = _dump(tmp_path / "other", 1, unsaved="the disk is full")
    assert values_needed.unsaved(other) is None
    assert values_needed.is_saved(other, "rank0/run0", 0, 0)
    assert open_dump(other).launches == 2
