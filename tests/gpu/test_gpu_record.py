"""A fault of the device: the probe `record` leaves the launches before it, and names the one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rewriter.dump.reading import open_dump
from test_gpu_graph_marks import PROGRAM
from test_gpu_programs import run

pytestmark = pytest.mark.gpu

_EAGER = PROGRAM.replace('(mode="reduce-overhead")', "")


def recorded(tmp_path: Path, probes: str, program: str) -> tuple[int, str, Path]:
    file, dump = tmp_path / "model.py", tmp_path / "dump"
    file.write_text(program)
    head = ["-m", "rewriter", "run", "--probe", probes, "-d", str(dump)]
    ran = run([*head, "--", sys.executable, str(file)], tmp_path / "cache")
    return ran.returncode, ran.stdout + ran.stderr, dump


def test_with_sync_the_launch_of_an_illegal_address_is_named(tmp_path: Path) -> None:
    code, text, dump = recorded(tmp_path, "record,sync", _EAGER)
    assert code == 1, text[-3000:]
    assert re.search(r"verdict: launch #\d+ scatter_kernel\S* .*faulted", text), text[-3000:]
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == list(range(6))
    assert any(row.which[0] is not None for row in runs[-1].errors())


def test_what_was_measured_before_an_illegal_address_is_there(tmp_path: Path) -> None:
    """Nothing is waited for: marks say how far the host was, rows how far the device was."""
    code, text, dump = recorded(tmp_path, "record", _EAGER)
    assert code == 1, text[-3000:]
    assert "verdict: " in text, text[-3000:]
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == list(range(6))
    # The calls before are whole, with all that was measured.
    before = runs[-2]
    last = max(before.table)
    assert before.steps[-1].launch == last
    assert all(
        getattr(row, "is_measured", True) for step in before.steps for row in before.rows(step)
    )
    step = runs[-1].steps[-1]
    assert any("scatter_kernel" in before.table[x].kernel for x in range((step.launch or 0) + 1))


def test_what_is_killed_has_its_calls(tmp_path: Path) -> None:
    program = _EAGER.replace(" + (1 << 40)", "") + "import os; os.kill(os.getpid(), 9)\n"
    code, text, dump = recorded(tmp_path, "record", program)
    assert code == 1, text[-3000:]
    assert "signal SIGKILL" in text
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == list(range(6))
    assert len({tuple(map(str, run.steps)) for run in runs}) == 1


def test_replays_of_a_graph_are_recorded(tmp_path: Path) -> None:
    code, text, dump = recorded(tmp_path, "record", PROGRAM.replace(" + (1 << 40)", ""))
    assert code == 0, text[-3000:]
    assert open_dump(dump).runs
