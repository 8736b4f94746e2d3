"""`compare --ranks` on the dumps of real processes, which torchrun starts and gloo connects.

What else may differ is in `tests/comparison/test_ranks.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch.distributed as dist

import programs
from caches import ROOT


@pytest.mark.exhaustive
@pytest.mark.skipif(not dist.is_available(), reason="a torch without torch.distributed")
def test_what_one_rank_has_otherwise_is_named(tmp_path: Path) -> None:
    """Data, a weight, a buffer, random numbers or a batch; and nothing is, where they are alike."""
    command = [sys.executable, "-m", "benchmarks.clean.ranks", "--only", "ddp"]
    command += ["--work", str(tmp_path)]
    done = programs.run(*command, cwd=ROOT)
    assert done.stdout.count("right ddp ") == 6
