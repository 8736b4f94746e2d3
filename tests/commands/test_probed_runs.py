"""What the runs of `sanitize` and `diagnose` ask of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rewriter.commands import _probed_runs, _program
from rewriter.commands._options import RunOptions
from rewriter.commands._probed_runs import How, ProgramSubject
from rewriter.core.exit_status import ExitStatus
from rewriter.execution.hook.run import HookedRun
from rewriter.instrumentation.select import select


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([], (), id="all that it loads"),
        pytest.param(["c*,d*", "e*"], ("c*", "d*", "e*"), id="as the user chose"),
    ],
)
@pytest.mark.parametrize("limit", [None, 7.0])
def test_each_run_probes_what_the_user_chose(
    limit: float | None,
    wanted: list[str],
    expected: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def run(request: Any, tell: Any) -> HookedRun:
        asked.append(request)
        return HookedRun(ExitStatus(0))

    monkeypatch.setattr(_probed_runs, "run", run)
    monkeypatch.setattr(_program, "warn", lambda run: None)
    subject = ProgramSubject(RunOptions(wrappers=wanted, timeout=limit), ["python", "train.py"])
    for number in range(2):
        how = How(environment={"A": "b"}, timeout=5.0)
        ran = subject.run(select("hash"), tmp_path / str(number), how)
        assert ran.dump is None
        assert ran.template.startswith("rewriter run --wrapper ")
    assert [one.globs for one in asked] == [expected] * 2
    assert {one.timeout for one in asked} == {limit or 5.0}
    assert [one.dump for one in asked] == [str(tmp_path / "0"), str(tmp_path / "1")]
    assert all(one.overwrite and one.environment == {"A": "b"} for one in asked)
    assert asked[0].stdin is asked[1].stdin
