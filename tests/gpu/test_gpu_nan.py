"""The probe `nan` on a GPU: the same counts as on the CPU, also of what a CUDA graph replays.

pytest -m gpu tests/gpu/test_gpu_nan.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tables
from measurements import measure
from rewriter.runtime import attach

pytestmark = pytest.mark.gpu

HALF = (
    *(torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)
TABLE = [tables.row(kind="triton", after=[["out", "y"]])]
PROGRAM = """
import torch
from rewriter.runtime import attach
from test_gpu_nan import TABLE, options

recorder = attach(options(stop=True), TABLE)
recorder.begin()
y = torch.ones(1000, device="cuda")
recorder.after(0, y)
y[7] = float("nan")
recorder.after(0, y)
print("not reached")
"""


def options(**changes: Any) -> dict[str, Any]:
    return tables.options("nan", args="written", **changes)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("count", [5, 4096, 300_001])
def test_what_is_near_the_limit_is_counted_as_on_the_cpu(dtype: torch.dtype, count: int) -> None:
    """Random bits: a third of float16 and fewer of the others are large, or not finite."""
    torch.manual_seed(count)
    bits = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    few = torch.zeros(count).to(dtype)
    few[count // 2] = torch.finfo(dtype).max
    for tensor in (bits, few, bits[: count // 2 * 2].view(2, -1).t()):
        (on_gpu,), (on_cpu,) = measure([tensor.cuda()]), measure([tensor])
        for name in ("nan", "inf", "near_limit", "min", "max"):
            assert on_gpu.get(name) == on_cpu.get(name), name


def test_what_a_replay_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder: Any = attach(options(), TABLE)
    value = torch.full((1000,), 10000.0, device="cuda", dtype=torch.float16)

    def call() -> None:
        recorder.begin()
        value.mul_(2)
        recorder.after(0, value)

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()  # 40,000: near the limit
    torch.cuda.synchronize()
    recorder.begin()
    graph.replay()  # infinite
    torch.cuda.synchronize()
    recorder.close()
    rows = [
        json.loads(line)
        for events in sorted(tmp_path.glob("rank0/run*/events.jsonl"))
        for line in events.read_text().splitlines()
    ]
    captured = [row for row in rows if row.get("captured")]
    assert [(row["inf"], row.get("near_limit", 0)) for row in captured] == [(0, 1000), (1000, 0)]
    out = capfd.readouterr().out
    assert "near the limit 1000 (100%) of 1000; min 4e+04 max 4e+04" in out
    assert "+inf 1000 of 1000\n" in out


def test_a_nan_ends_the_program(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "REWRITER_DUMP": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "not reached" in ran.stdout) == (1, False), ran.stderr
    assert "stopped at #0 k: 1 of 1000 elements of y are NaN (--stop)" in ran.stderr
    rows = (tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()
    assert [json.loads(row)["nan"] for row in rows] == [0, 1]
    assert (tmp_path / "stopped.json").is_file()
