"""Calls with small values are evaluated with one thread each, and the process keeps its threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from report_dumps import row, write_dump
from rewriter.core import parallel
from rewriter.diagnosis.verification import threads
from rewriter.dump.reading import RunDump, open_dump


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        yield
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def _threads(run: RunDump) -> Iterator[tuple[str, int, int]]:
    yield str(run.path), torch.get_num_threads(), os.getpid()


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("shape", "enough"), [([1024, 1025], 3), ([1 << 30], 3), ([1024, 1024], 1), ([], 1)]
)
def test_one_thread_is_enough_for_small_values(
    shape: list[int], enough: int, tmp_path: Path
) -> None:
    rows = [row(0, "after", "buf0", shape=[]), row(1, "after", "buf1", shape=shape)]
    runs = open_dump(write_dump(tmp_path, rows)).runs
    assert list(threads.for_each(runs, _threads)) == [(str(runs[0].path), enough, os.getpid())]


@pytest.mark.usefixtures("three_threads")
def test_calls_of_small_values_are_shared_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_can_fork", lambda: True)
    runs = []
    for number, shape in enumerate([[1], [1024, 1025], [2], [3], [4]]):
        folder = tmp_path / str(number)
        runs += open_dump(write_dump(folder, [row(0, "after", "buf0", shape=shape)])).runs
    found = list(threads.for_each(runs, _threads))
    assert [path for path, _, _ in found] == [str(run.path) for run in runs]
    assert [many for _, many, _ in found] == [1, 3, 1, 1, 1]
    assert found[1][2] == os.getpid()
    processes = {process for _, _, process in (found[0], *found[2:])}
    assert len(processes) == 2
    assert os.getpid() not in processes
