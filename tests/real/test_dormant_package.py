"""A package with dormant probes, called by several threads, is switched while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, subprocess, sys, threading, time
from pathlib import Path
import torch

folder = Path(sys.argv[1])
control = folder / "ctl"
os.environ["REWRITER_CONTROL"] = str(control)

def rewriter(*words):
    subprocess.run([sys.executable, "-m", "rewriter", *words], check=True)

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Softmax(-1), torch.nn.Linear(16, 16))
x = torch.randn(4, 16)
with torch.no_grad():
    plain, probed = folder / "model.pt2", folder / "probed.pt2"
    exported = torch.export.export(model, (x,))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(plain))
    rewriter("instrument", str(plain), "--dormant", "-o", str(probed))
    expected = torch._inductor.aoti_load_package(str(plain))(x)
    run = torch._inductor.aoti_load_package(str(probed))
    stopping, wrong, calls = threading.Event(), [], []

    def work():
        while not stopping.is_set():
            if not torch.equal(run(x), expected):
                wrong.append(1)
            calls.append(1)

    def wait(name, count):
        end = time.monotonic() + 60
        while len(list(folder.glob(name + "/rank0/run*/events.jsonl"))) < count:
            assert time.monotonic() < end, name
            time.sleep(0.01)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert not list(folder.glob("first*"))
    rewriter("control", str(control), "set", "hash", "--kernels", "*SOFTMAX*", "--calls", "10",
             "-d", str(folder / "first"), "--quiet")
    wait("first", 10)
    rewriter("control", str(control), "set", "names,print", "--every", "5",
             "-d", str(folder / "second"), "--quiet")
    wait("second", 5)
    control.write_text("{")
    time.sleep(0.1)
    control.unlink()
    time.sleep(0.1)
    rewriter("control", str(control), "off")
    time.sleep(0.1)
    before = len(list(folder.glob("second/rank0/run*")))
    time.sleep(0.1)
    assert len(list(folder.glob("second/rank0/run*"))) == before
    rewriter("control", str(control), "show")
    stopping.set()
    for thread in threads:
        thread.join()
print("calls", len(calls) > 100, "wrong", len(wrong))
"""


@pytest.mark.exhaustive
def test_a_package_is_switched_while_threads_call_it(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "calls True wrong 0" in result.stdout
    assert ": off, " in result.stdout
    assert result.stderr.count("it is no rewriter.control; nothing was switched") == 1
    runs = [path.read_text() for path in tmp_path.glob("first/rank0/run*/events.jsonl")]
    assert len(runs) == 10
    assert all("cpp_fused__softmax" in rows and "addmm" not in rows for rows in runs)
