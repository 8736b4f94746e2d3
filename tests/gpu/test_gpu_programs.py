"""Whole programs on a GPU, probed as they load their wrappers, and unchanged themselves."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rewriter
from harness import events

pytestmark = pytest.mark.gpu

HOME = Path(rewriter.__file__).parent.parent
TRAIN = """\
import os
import torch
import torch._inductor.config as config

config.cpp_wrapper = os.environ.get("LANGUAGE") == "cpp"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(model, mode=os.environ.get("MODE", "default"))
for batch in map(int, os.environ.get("BATCHES", "8,8,12,16").split(",")):
    loss = step(torch.randn(batch, 16, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {batch} {loss.item().hex()}", flush=True)
"""
FROZEN = """\
import torch
import torch._inductor.config as config

config.freezing = True
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
model = torch.compile(model.cuda().eval())
with torch.no_grad():
    print(f"loss {model(torch.ones(8, 16, device='cuda')).sum().item().hex()}")
"""
# What an index leads to makes the difference: compiling and tuning see what is right. OPTIONS are
# those of `torch.compile`.
SCATTER = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scatter_kernel(x_ptr, where_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    where = tl.load(where_ptr + at, mask=at < n)
    tl.store(out_ptr + where, x, mask=at < n)


@torch.compile(OPTIONS)
def model(x, weight, where):
    y = torch.relu(x @ weight)
    out = torch.empty_like(y)
    scatter_kernel[(triton.cdiv(y.numel(), 256),)](y, where, out, y.numel(), BLOCK=256)
    for _ in range(4):
        out = torch.tanh(out @ weight) + 1
    return out.sum()


torch.manual_seed(0)
x, weight = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
where = torch.arange(64 * 64, device="cuda")
"""
OUT_OF_BOUNDS = (
    SCATTER
    + """\
print("sum", model(x, weight, where).item(), flush=True)
print("sum", model(x, weight, where + (1 << 40)).item(), flush=True)
"""
)
RANKS = """\
import os
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


@torch.compile
def step(x, weight):
    y = torch.softmax(x @ weight, -1)
    total = collectives.all_reduce(y, "sum", dist.group.WORLD)
    return torch.tanh(total * 2).sum(0)


torch.manual_seed(0)
x, weight = torch.randn(64, 64).cuda(), torch.randn(64, 64).cuda()
if os.environ.get("PLANTED") and rank == 1:
    weight = weight * 1.01
print("rank", rank, step(x, weight).sum().item(), flush=True)
dist.destroy_process_group()
"""


def run(command: list[str], cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cache.parent,
        env={
            **os.environ,
            "PYTHONPATH": f"{HOME}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=400,
    )


def probed(
    program: Path, cache: Path, probe: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    head = ["-m", "rewriter", "run", "--probe", probe, "-d", str(cache.parent / "dump")]
    return run(
        [*head, "--overwrite", *options, "--", sys.executable, str(program)], cache, **environment
    )


def losses(ran: subprocess.CompletedProcess[str]) -> list[str]:
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = re.findall(r"^loss .*", ran.stdout, re.MULTILINE)
    assert found
    return found


def wrappers(cache: Path) -> dict[str, str]:
    return {
        str(file.relative_to(cache)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in cache.glob("??/*.py")
    }


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_training_script(language: str, mode: str, tmp_path: Path) -> None:
    program, cache = tmp_path / "train.py", tmp_path / "cache"
    program.write_text(TRAIN)
    about = {"LANGUAGE": language, "MODE": mode}
    if mode == "reduce-overhead":
        about["BATCHES"] = "8,8,8,8,8"
    run([str(program)], cache, **about)
    plain = losses(run([str(program)], cache, **about))
    before = wrappers(cache)
    ran = probed(program, cache, "names,sync,time,print,hash", **about)
    assert losses(ran) == plain
    assert wrappers(cache) == before
    kernels = {str(row.get("kernel", "")) for row in events(tmp_path / "dump")}
    assert any("native_layer_norm_backward" in kernel for kernel in kernels), kernels
    assert any("gelu" in kernel and "backward" not in kernel for kernel in kernels), kernels


def test_frozen_weights(tmp_path: Path) -> None:
    program, cache = tmp_path / "frozen.py", tmp_path / "cache"
    program.write_text(FROZEN)
    run([str(program)], cache)
    plain = losses(run([str(program)], cache))
    before = wrappers(cache)
    ran = probed(program, cache, "print")
    assert losses(ran) == plain
    assert {name: wrappers(cache)[name] for name in before} == before
    assert events(tmp_path / "dump") or "_frozen_param" in ran.stderr


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_an_access_out_of_bounds(language: str, tmp_path: Path) -> None:
    program, cache = tmp_path / "model.py", tmp_path / "cache"
    options = 'options={"cpp_wrapper": True}' if language == "cpp" else ""
    program.write_text(OUT_OF_BOUNDS.replace("OPTIONS", options))
    ran = probed(program, cache, "names,sync")
    assert ran.returncode == 1, ran.stderr[-3000:]
    assert re.search(r"launch #\d+ scatter_kernel", ran.stderr + ran.stdout), ran.stderr[-3000:]


def test_triage_of_a_program(tmp_path: Path) -> None:
    program, cache = tmp_path / "model.py", tmp_path / "cache"
    program.write_text(OUT_OF_BOUNDS.replace("OPTIONS", ""))
    command = ["-m", "rewriter", "triage", "--", sys.executable, str(program)]
    ran = run(command, cache)
    assert ran.returncode == 1, ran.stderr[-3000:]
    assert re.search(r"launch #\d+ scatter_kernel", ran.stderr + ran.stdout), ran.stderr[-3000:]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("planted", ["", "1"])
def test_two_ranks(planted: str, tmp_path: Path) -> None:
    program, cache = tmp_path / "ranks.py", tmp_path / "cache"
    program.write_text(RANKS)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    # Each rank tunes its own kernels: hashes would tell their roundings apart.
    head = ["-m", "rewriter", "run", "--probe", "save", "-d", str(tmp_path / "dump")]
    ran = run([*head, "--", sys.executable, *torchrun, str(program)], cache, PLANTED=planted)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert {path.name for path in (tmp_path / "dump").glob("rank*")} == {"rank0", "rank1"}
    compared = run(["-m", "rewriter", "compare", str(tmp_path / "dump"), "--ranks"], cache)
    assert compared.returncode == (1 if planted else 0), compared.stdout + compared.stderr
