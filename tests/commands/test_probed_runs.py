"""Which wrappers get probes in the runs of `sanitize` and `diagnose`."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.cache.usage import Usage
from rewriter.commands import _cache_run, _program
from rewriter.commands._probed_runs import ProgramSubject
from rewriter.core.exit_status import ExitStatus
from rewriter.instrumentation.select import select

CALLED = {"cabc.py": 2, "cdef.py": 1, "cnot.py": 0}


@pytest.mark.parametrize(
    ("wanted", "there", "expected"),
    [
        pytest.param([], (), [(), ()], id="the program keeps its cache elsewhere"),
        pytest.param([], ("cabc.py",), [(), ()], id="part of it"),
        pytest.param(["c*"], ("cabc.py", "cdef.py"), [("c*",)] * 2, id="as the user chose"),
        pytest.param(
            [], ("cabc.py", "cdef.py"), [(), ("cabc.py", "cdef.py")], id="those that it called"
        ),
    ],
)
def test_later_runs_probe_what_the_first_one_called(
    wanted: list[str],
    there: tuple[str, ...],
    expected: list[tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in there:
        (tmp_path / name[1:3]).mkdir()
        (tmp_path / name[1:3] / name).touch()
    chosen = []

    def run_probed(request: Any) -> Any:
        chosen.append(request.choice.globs)
        summary = SimpleNamespace(calls=CALLED)
        run = SimpleNamespace(used=Usage(), summary=summary, dump=None, ended=ExitStatus(0))
        return SimpleNamespace(run=run)

    monkeypatch.setattr(_program, "run_probed", run_probed)
    monkeypatch.setattr(_cache_run, "warn", lambda run: None)
    monkeypatch.setattr(_cache_run, "template", lambda request, run: "")
    arguments = argparse.Namespace(
        wrappers=wanted, dir=tmp_path, since=None, newest=None, dump=None, overwrite=True,
        timeout=None, json=False, command_line="",
    )  # fmt: skip
    subject = ProgramSubject(arguments, ["python", "train.py"])
    for number in range(2):
        subject.run(select("hash"), tmp_path / str(number))
    assert chosen == expected
