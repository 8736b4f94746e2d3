"""Steps that overflow on purpose are no finding; a training of which no step is taken is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.diagnosis.nonfinite_origin import skipped_note, skipped_steps


def _dump(finite: str, direction: str = "backward") -> Any:
    runs = [
        SimpleNamespace(
            name=f"run{number}", number=number, rank=0, sha256="ab", ok=one == ".",
            facts=SimpleNamespace(pid=1), names=SimpleNamespace(direction=direction),
        )
        for number, one in enumerate(finite)
    ]  # fmt: skip
    return SimpleNamespace(runs=tuple(runs))


@pytest.mark.parametrize(
    ("finite", "expected"),
    [
        ("xxx.....x....", {0, 1, 2, 8}),
        ("..x.x", {2, 4}),  # the last one, too: a step before it was skipped
        ("....", set()),
        ("xxxx", set()),  # no step was taken
        ("..xxxx", set()),  # the weights may have taken it: nothing recovers
        ("x.xxxxxxxxxx", set()),  # the last ten
    ],
)
def test_steps_that_a_scaler_skips(finite: str, expected: set[int]) -> None:
    dump = _dump(finite)
    found = skipped_steps(dump, lambda run: bool(run.ok))  # type: ignore[attr-defined]
    assert found == {f"run{number}" for number in expected}
    assert bool(skipped_note(found)) == bool(expected)


def test_only_gradients_are_skipped() -> None:
    assert not skipped_steps(_dump("x..", "forward"), lambda run: bool(run.ok))  # type: ignore[attr-defined]
