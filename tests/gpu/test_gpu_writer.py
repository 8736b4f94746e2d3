"""What is measured on a GPU is written in order, without waiting for the device, and none is lost.

pytest -m gpu tests/gpu/test_gpu_writer.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tables

pytestmark = pytest.mark.gpu

TABLE = [
    tables.row(
        index,
        f"k{index}",
        kind="triton",
        before=[["in", "x"], ["inout", "y"]],
        after=[["in", "x"], ["inout", "y"], ["out", "z"], ["in", "n"]],
    )
    for index in range(3)
]


def options(*names: str, **changes: Any) -> dict[str, Any]:
    return tables.options(*names, **{"when": "both", **changes})


def rows(dump: Path, run: int = 0) -> list[dict[str, Any]]:
    text = (dump / f"rank0/run{run}/events.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


START = f"""
import os, signal, sys, threading, time
import torch
from rewriter.runtime import attach
TABLE = {TABLE!r}
def options(*names, **changes):
    return {{**{options()!r}, "probes": list(names), **changes}}
"""


def program(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REWRITER_DUMP": str(folder / "dump")}
    command = [sys.executable, "-c", START + text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_more_than_the_ring_holds(tmp_path: Path) -> None:
    """Each row has the numbers of its own launch, in order; memory is used again meanwhile."""
    ran = program(
        "recorder = attach(options('print', 'hash', when='after'), TABLE)\n"
        "for call in range(2):\n"
        "    recorder.begin()\n"
        "    for number in range(5000):\n"
        "        value = torch.full((1 + number % 7, 3), float(number), device='cuda')\n"
        "        recorder.after(number % 3, value, value, value, number)\n",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    for run in range(2):
        tensors = [row for row in rows(tmp_path / "dump", run) if "dtype" in row]
        assert [row["min"] for row in tensors] == [float(n) for n in range(5000) for _ in range(3)]
        assert [row["max"] for row in tensors] == [row["min"] for row in tensors]
    assert len(ran.stdout.splitlines()) == 2 * 5000 * 4


def test_nothing_waits_for_the_device(tmp_path: Path) -> None:
    ran = program(
        "os.environ['REWRITER_QUIET'] = '1'\n"
        "recorder = attach(options('print', when='after'), TABLE)\n"
        "value = torch.ones(1 << 20, device='cuda')\n"
        "recorder.begin(); recorder.after(0, value, value, value, 1)\n"
        "recorder.begin(); torch.cuda.synchronize()\n"
        "torch.cuda._sleep(4_000_000_000)\n"  # seconds
        "started = time.perf_counter()\n"
        "for number in range(100): recorder.after(0, value, value, value, 1)\n"
        "waited = time.perf_counter() - started\n"
        "assert not torch.cuda.current_stream().query()\n"
        "print(waited)\n",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 0.5


def test_a_fault_leaves_what_was_measured_and_ends(tmp_path: Path) -> None:
    ran = program(
        "recorder = attach(options('print', when='after'), TABLE)\n"
        "recorder.begin()\n"
        "value = torch.ones(1000, device='cuda')\n"
        "for number in range(20): recorder.after(number % 3, value, value, value, number)\n"
        "time.sleep(0.5)\n"
        "index = torch.full((8,), 1 << 40, device='cuda')\n"
        "torch.gather(value, 0, index)\n"
        "for number in range(20): recorder.after(number % 3, value, value, value, number)\n"
        "recorder.begin()\n",
        tmp_path,
    )
    found = rows(tmp_path / "dump")
    measured = [row for row in found if row.get("numel")]
    assert len(measured) >= 20 * 3
    assert "warning" in ran.stderr
    assert len(ran.stdout.splitlines()) >= 20 * 4


def test_streams_and_threads(tmp_path: Path) -> None:
    ran = program(
        "recorder = attach(options('print', when='after'), TABLE)\n"
        "def work(number):\n"
        "    with torch.cuda.stream(torch.cuda.Stream()):\n"
        "        for _ in range(20):\n"
        "            recorder.begin()\n"
        "            for launch in range(3):\n"
        "                value = torch.full((1000,), float(number), device='cuda')\n"
        "                recorder.after(launch, value, value, value, number)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "[x.start() for x in threads]; [x.join() for x in threads]\n",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    runs = sorted((tmp_path / "dump/rank0").iterdir())
    assert len(runs) == 80
    for run in range(80):
        found = rows(tmp_path / "dump", run)
        assert len({row["min"] for row in found if "dtype" in row}) == 1
        assert [row["launch"] for row in found] == [0] * 4 + [1] * 4 + [2] * 4
