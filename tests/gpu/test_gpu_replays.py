"""What is said of a replay of a CUDA graph: the call that replays, its inputs, and what is next.

pytest -m gpu tests/gpu/test_gpu_replays.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from test_gpu_graph_marks import PYTHON
from test_gpu_programs import run

pytestmark = pytest.mark.gpu

# The calls from the 13th on, which replay, take logarithms of negative numbers.
NAN = """\
import torch

torch.manual_seed(0)
linear, head = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()


@torch.compile(mode="reduce-overhead")
def model(x, shift):
    return head(torch.log(linear(x).abs() + shift)).softmax(-1)


with torch.no_grad():
    x = torch.ones(32, 64, device="cuda")
    for step in range(16):
        shift = torch.full((), -9.0 if step >= 12 else 0.5, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        print("sum", model(x, shift).sum().item(), flush=True)
"""
# In one, the whole wrapper is captured, and a replay does not call it; in the other, its parts are.
modes = pytest.mark.parametrize("partition", ["0", "1"], ids=["whole", "partitions"])


@modes
@pytest.mark.parametrize("probes", ["names,print,inputs", "names,inputs"])
def test_inputs_are_not_copied_within_a_capture(
    probes: str, partition: str, tmp_path: Path
) -> None:
    path, cache = tmp_path / "model.py", tmp_path / "cache"
    path.write_text(NAN)
    plain = run([str(path)], cache, TORCHINDUCTOR_GRAPH_PARTITION=partition)
    head = ["-m", "rewriter", "run", "--probe", probes, "--quiet", "-d", str(tmp_path / "dump")]
    command = [*head, "--", sys.executable, str(path)]
    ran = run(command, cache, TORCHINDUCTOR_GRAPH_PARTITION=partition)
    assert plain.returncode == 0, plain.stderr[-3000:]
    assert ran.stdout.startswith(plain.stdout)  # a finding follows
    assert plain.stdout.count("sum") == 16
    for problem in ("warning: inputs", "stream is capturing", "Cannot copy between", "Traceback"):
        assert problem not in ran.stderr


@modes
def test_a_nan_in_a_replay_is_of_the_call_that_replayed(partition: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "model.py", tmp_path / "cache"
    path.write_text(NAN)
    for options in ([], ["--stop"]):
        head = ["-m", "rewriter", "run", *options, "-d", str(tmp_path / "dump"), "--overwrite"]
        command = [*head, "--", sys.executable, str(path)]
        ran = run(command, cache, TORCHINDUCTOR_GRAPH_PARTITION=partition)
        text = ran.stdout + ran.stderr
        assert ran.returncode == 1, text[-3000:]
        assert "makes the first NaN" in ran.stdout
        following = [x for x in text.splitlines() if x.lstrip().startswith("next:")]
        assert not any("save" in line for line in following)
        call = re.search(r"(\d+)\w\w call of the", ran.stdout)
        assert call is not None, text
        if partition == "1":
            assert int(call[1]) == 13
            assert re.search(r"in +\S+.* f32\[\].* min -9 ", ran.stdout), text
        if options and partition == "1":  # replays of a whole wrapper run no host code to stop at
            stopped = re.search(r"call (\d+) stopped at", text)
            assert stopped is not None, text
            assert int(stopped[1]) + 1 == int(call[1])


@modes
def test_triage_names_the_call_that_replayed_with_its_inputs(
    partition: str, tmp_path: Path
) -> None:
    """The 6th call is given indices that begin at 2**40; those before it, and the one that captured
    the graph, had indices below 4,096."""
    path, cache = tmp_path / "model.py", tmp_path / "cache"
    path.write_text(PYTHON)
    command = ["-m", "rewriter", "triage", "--", sys.executable, str(path)]
    ran = run(command, cache, TORCHINDUCTOR_GRAPH_PARTITION=partition)
    text = ran.stdout + ran.stderr
    assert ran.returncode == 1, text
    (verdict,) = re.findall(r"^verdict: .*\n(?:  .*\n)*", text, re.MULTILINE)
    assert "in the replay of a CUDA graph" in verdict
    assert "next:" not in verdict
    assert "max 4095" not in verdict
    if partition == "1":
        assert "6th call of the" in verdict
        assert re.search(r"i64\[4096\].* min 1099511627776 ", verdict), verdict
    else:
        assert "a replay of the graph that the" in verdict
