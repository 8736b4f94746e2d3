"""Trains on two ranks, right and with one thing changed, and asks `compare --ranks` about each.

    python -m benchmarks.clean.ranks [--device cpu|cuda] [--only TEXT]

Prints a line for each job, and ends with 1 where an answer is not the one that is expected here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAYS = ("ddp", "fsdp2", "tp")
# What is changed on rank 1, and what has to be said: the reason of the first divergence, and a part
# of the name in the model; none where ranks differ by right.
FAULTS: dict[str, tuple[str, str]] = {
    "none": ("", ""),
    "own": ("", ""),  # each rank has its own data
    "weight": ("inputs", "up.weight"),  # one element
    "buffer": ("inputs", "scale"),
    "seed": ("", ""),  # of the random numbers: dropout draws others
    "input": ("", ""),  # one batch
}


@dataclass(frozen=True)
class Job:
    """One run of two ranks."""

    way: str
    fault: str

    @property
    def expected(self) -> tuple[str, str]:
        if self.way == "tp" and self.fault in ("own", "input"):
            # Weights that are no shards are updated from data that should be the same.
            return "inputs", "norm.weight"
        # Each shard of a weight is on one rank: FSDP2 gathers the same on all, TP compares none.
        is_shard = self.fault == "weight" and self.way != "ddp"
        return ("", "") if is_shard else FAULTS[self.fault]


def train(way: str, fault: str, device: str) -> None:
    """What each rank runs."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn import functional

    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")

    class Block(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
            self.register_buffer("scale", torch.ones(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = functional.gelu(self.up(self.norm(x) * self.scale))
            return x + self.down(functional.dropout(hidden, 0.1))

    torch.manual_seed(0)
    network: Any = nn.Sequential(Block(), Block(), nn.Linear(32, 5)).to(device)
    blocks: list[Any] = list(network[:2])
    if way == "ddp":
        network = nn.parallel.DistributedDataParallel(network, broadcast_buffers=False)
        network.compile()
    elif way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in blocks:
            block.compile()
            fully_shard(block)
        fully_shard(network)
    else:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = init_device_mesh(device, (2,))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in blocks:
            parallelize_module(block, mesh, plan)
            block.compile()
    if rank == 1 and fault == "weight":
        _change(blocks[1].up.weight)
    if rank == 1 and fault == "buffer":
        blocks[1].scale[7] = 1.01
    torch.manual_seed(rank if fault == "seed" else 0)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    for step in range(3):
        own = rank * (fault == "own" or (fault == "input" and step == 1))
        generator = torch.Generator().manual_seed(step + 100 * own)
        x = torch.randn(6, 9, 32, generator=generator).to(device)
        network(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def _change(parameter: Any) -> None:
    """Change one element of this rank's part of a parameter."""
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    local.data.view(-1)[5] += 1e-3


def ask(job: Job, device: str, work: Path) -> tuple[str, str, int]:
    """Run a job with probes. Returns the reason of the first divergence, the verdict, and the exit
    code of the comparison."""
    folder = work / f"{job.way}-{job.fault}"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(work / f"cache-{job.way}")}
    program = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--no-python",
    ]
    program += [
        sys.executable,
        "-m",
        "benchmarks.clean.ranks",
        "--train",
        job.way,
        job.fault,
        device,
    ]
    rewriter = [sys.executable, "-m", "rewriter"]
    dump = str(folder / "dump")
    options = ["--probe", "save", "--quiet", "--overwrite", "-d", dump]
    with (folder / "run.txt").open("w") as log:
        subprocess.run(
            [*rewriter, "run", *options, "--", *program],
            check=True, stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    ended = subprocess.run(
        [*rewriter, "compare", dump, "--ranks", "--json"],
        check=False, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    (folder / "answer.json").write_text(ended.stdout + ended.stderr)
    document = json.loads(ended.stdout)
    first = document.get("first") or {}
    return first.get("reason", ""), document["sentence"], ended.returncode


def jobs(only: str) -> Iterator[Job]:
    for way in WAYS:
        for fault in FAULTS:
            if only in f"{way}-{fault}":
                yield Job(way, fault)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", metavar="TEXT", help="jobs with it in their name")
    parser.add_argument("--work", type=Path, default=Path("build/ranks"), metavar="DIR")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.train:
        train(*arguments.train)
        return 0
    wrong = 0
    for job in jobs(arguments.only):
        reason, verdict, code = ask(job, arguments.device, arguments.work.resolve())
        wanted, name = job.expected
        right = reason == wanted and name in verdict and code == bool(wanted)
        wrong += not right
        print(f"{'right' if right else 'WRONG'} {job.way} {job.fault}: {verdict}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
