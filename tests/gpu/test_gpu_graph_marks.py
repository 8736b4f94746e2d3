"""A fault in the replay of a CUDA graph: the marks that it leaves name the launch."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import pytest

from test_gpu_programs import SCATTER, run

pytestmark = pytest.mark.gpu

# The first calls warm up and capture; the last one replays, with an index that is far too large.
PYTHON = (
    SCATTER.replace("OPTIONS", 'mode="reduce-overhead"')
    + """\
with torch.no_grad():
    for call in range(5):
        print("sum", model(x, weight, where).item(), flush=True)
    print("sum", model(x, weight, where + (1 << 40)).item(), flush=True)
"""
)
# The same with a wrapper in C++, which is captured by hand.
CPP = (
    SCATTER.replace("OPTIONS", 'options={"cpp_wrapper": True}')
    + """\
with torch.no_grad():
    with torch.cuda.stream(torch.cuda.Stream()):
        for call in range(3):
            print("sum", model(x, weight, where).item(), flush=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(x, weight, where)
    for call in range(2):
        graph.replay()
        print("sum", result.item(), flush=True)
    where += 1 << 40
    graph.replay()
    print("sum", result.item(), flush=True)
"""
)
both = pytest.mark.parametrize("program", [PYTHON, CPP], ids=["python", "cpp"])


@both
def test_triage_names_the_launch_of_a_replay(program: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "model.py", tmp_path / "cache"
    path.write_text(program)
    before = left_marks()
    command = ["-m", "rewriter", "triage", "--", sys.executable, str(path)]
    ran = run(command, cache)
    text = ran.stdout + ran.stderr
    assert ran.returncode == 1, text
    assert re.search(r"in launch #\d+ scatter_kernel\S*.* in the replay of a CUDA graph", text), (
        text
    )
    assert left_marks() <= before


def left_marks() -> set[str]:
    """The files of marks that no process uses, such as one of a test that runs beside this one."""
    names = [name for name in os.listdir("/dev/shm") if name.startswith("rewriter-marks-")]
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it ended
            mapped += maps.read_text()
    return {name for name in names if name not in mapped and Path("/dev/shm", name).exists()}


@both
def test_marks_change_nothing(program: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "model.py", tmp_path / "cache"
    path.write_text(program.replace("1 << 40", "0"))
    plain = run([str(path)], cache)
    head = ["-m", "rewriter", "run", "--probe", "names,sync", "--quiet"]
    probed = run([*head, "-d", str(tmp_path / "dump"), "--", sys.executable, str(path)], cache)
    assert plain.returncode == probed.returncode == 0, probed.stderr[-3000:]
    sums = [line for line in plain.stdout.splitlines() if line.startswith("sum")]
    assert len(sums) == 6
    assert [line for line in probed.stdout.splitlines() if line.startswith("sum")] == sums
    assert list((tmp_path / "dump").glob("graph-marks-*.jsonl"))
