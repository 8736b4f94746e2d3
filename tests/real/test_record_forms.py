"""A package that dies with the probe `record` leaves its calls; wrappers, and other deaths, are in
`tests/runtime/test_record.py`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import programs
import rewriter
from capture import Packaged
from rewriter.dump.reading import open_dump

pytestmark = pytest.mark.usefixtures("warm_python")


PACKAGE = """
import os, sys
import torch

run = torch._inductor.aoti_load_package(sys.argv[1])
inputs = torch.load(sys.argv[2])
for _ in range(3):
    run(*inputs)
os.kill(os.getpid(), 9)
"""


@pytest.mark.exhaustive
def test_a_package(packaged: Callable[..., Packaged], tmp_path: Path) -> None:
    package = packaged("mlp")
    probed, inputs, dump = tmp_path / "probed.pt2", tmp_path / "inputs.pt", tmp_path / "dump"
    (given,) = package.inputs.values()
    torch.save(list(given), inputs)
    programs.rewriter("instrument", package.path, "--probe", "record", "-o", probed)
    about = {"REWRITER_DUMP": dump, "REWRITER_RECORD_BYTES": "256Ki"}
    line = [sys.executable, "-c", PACKAGE, probed, inputs]
    programs.run(*line, code=-signal.SIGKILL, **about)
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == [0, 1, 2]
    launches = [x.index for x in rewriter.open(package.path).launches]
    assert {step.launch for step in runs[2].steps} == {None, *launches}
    said = programs.rewriter("triage", dump, code=None).stdout
    assert "the program ended outside of launches, after launch #" in said
