"""Graphs of small values are evaluated with one thread, and the process keeps its threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from report_dumps import row, write_dump
from rewriter.dump.reading import open_dump
from rewriter.verification import threads


@pytest.mark.parametrize(
    ("shape", "enough"), [([1024, 1025], 3), ([1 << 30], 3), ([1024, 1024], 1), ([], 1)]
)
def test_one_thread_is_enough_for_small_values(
    shape: list[int], enough: int, tmp_path: Path
) -> None:
    rows = [row(0, "after", "buf0", shape=[]), row(1, "after", "buf1", shape=shape)]
    (run,) = open_dump(write_dump(tmp_path, rows)).runs
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads.enough_for(run):
            assert torch.get_num_threads() == enough
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
