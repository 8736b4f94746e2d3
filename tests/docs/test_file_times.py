"""The table of what files of tests take: `make slow` compares with it, and it has a budget."""

from __future__ import annotations

import subprocess
import sys

import pytest

from file_times import AROUND, OTHERS, SMALL, TESTS, cpu_seconds, expected, summary, table_of

# CPU seconds: what a plain run took when it was measured last, and a twentieth more; the limit of
# seven minutes on two cores is about 800. What comes in addition moves something else to
# `make exhaustive`.
BUDGET = 730


def test_the_table_is_of_files_that_are_there_and_within_the_budget() -> None:
    table = expected()
    assert sum(table.values()) <= BUDGET
    assert list(table.values()) == sorted(table.values(), reverse=True)
    assert [
        name for name in table if name not in (AROUND, OTHERS) and not (TESTS / name).is_file()
    ] == []


def test_small_files_are_one_row_and_what_grew_is_marked() -> None:
    found = {"a.py": 30.0, "b.py": 9.0, "c.py": SMALL / 2, "d.py": SMALL / 2, AROUND: 1.0}
    assert table_of(found) == {"a.py": 30.0, "b.py": 9.0, OTHERS: SMALL, AROUND: 1.0}
    # A machine that is half as fast; one file takes thrice as long.
    lines = list(summary({"a.py": 60.0, "b.py": 27.0}, {"a.py": 30.0, "b.py": 9.0}))
    assert [line.split()[2:] for line in lines[1:3]] == [["a.py"], ["b.py", "above", "its", "row"]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_seconds_of_processes_that_run_and_of_those_that_ended_count() -> None:
    work = "import time\nwhile time.process_time() < 0.1: pass\n"
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", work], check=True)
    ended = cpu_seconds()
    assert ended - before >= 0.08
    wait = f"{work}print(flush=True); input()"
    command = [sys.executable, "-c", wait]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert cpu_seconds() - ended >= 0.08
