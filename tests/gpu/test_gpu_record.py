"""A fault of the device: the probe `record` leaves the launches before it, and names the one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rewriter.dump.reading import open_dump
from rewriter.dump.rows import ErrorRow, TensorRow
from test_gpu_graph_marks import PYTHON
from test_gpu_programs import run

pytestmark = pytest.mark.gpu

_EAGER = PYTHON.replace('(mode="reduce-overhead")', "")


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
    assert any(row.which[0] is not None for row in runs[-1].having("error", ErrorRow))


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


@pytest.mark.parametrize("pause", [0.0, 0.2], ids=["at once", "later"])
def test_what_is_killed_has_its_calls(tmp_path: Path, pause: float) -> None:
    """Each row is of its call, told by the sum that the call printed. What the device measured in
    the last milliseconds may be on its way yet: then calls end earlier, but for the mark of the
    last one."""
    program = _EAGER.replace(" + (1 << 40)", "").replace("(x, weight", "(x * next(factors), weight")
    program = program.replace("where = torch", "factors = iter(range(1, 9))\nwhere = torch")
    program += f"import os, time; time.sleep({pause}); os.kill(os.getpid(), 9)\n"
    program = program.replace("def model(x * next(factors)", "def model(x")
    code, text, dump = recorded(tmp_path, "record", program)
    assert code == 1, text[-3000:]
    assert "signal SIGKILL" in text
    sums = [float(line.split()[1]) for line in text.splitlines() if line.startswith("sum ")]
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == list(range(6))
    every = [[str(step) for step in run.steps] for run in runs]
    whole = max(every, key=len)
    assert whole[0] == "inputs"
    assert len(whole) > 10
    for steps in every[:-1]:
        assert steps == whole[: len(steps)], every
    assert every[-1] == whole or (not pause and every[-1][-1] == whole[-1]), every
    assert not pause or every == [whole] * 6
    for one, total in zip(runs, sums[-6:], strict=True):
        found = [row for step in one.steps if str(step) == whole[-1] for row in one.rows(step)]
        values = [row for row in found if isinstance(row, TensorRow) and row.is_measured]
        assert [row.max for row in values] in ([total], []), every


def test_replays_of_a_graph_are_recorded(tmp_path: Path) -> None:
    code, text, dump = recorded(tmp_path, "record", PYTHON.replace(" + (1 << 40)", ""))
    assert code == 0, text[-3000:]
    assert open_dump(dump).runs
