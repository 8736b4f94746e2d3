"""Steps that overflow on purpose are no finding; a training of which no step is taken is one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dumps
from dumps import launch, value
from rewriter.diagnosis.nonfinite_origin import skipped_note, skipped_steps
from rewriter.dump.names import Names
from rewriter.dump.reading import RunDump, open_dump
from rewriter.report import model


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


@pytest.mark.parametrize("recovers", [False, True])
def test_a_report_has_a_note_of_a_step_that_was_skipped(
    recovers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunDump, "names", Names(direction="backward"))
    x = value("arg0_1")
    for run, nan in enumerate((3, 0 if recovers else 3)):
        done = launch(0, "cpp_fused_mul_0", [x], [value("buf0", "out", nan=nan)], scope="call")
        dumps.write(tmp_path, [done], inputs=[x], run=run, call=run, outputs=("buf0",))
    reported = model.report(open_dump(tmp_path))
    assert reported.found is not recovers
    assert recovers == reported.verdict.startswith("The gradients of one step are not finite and")
