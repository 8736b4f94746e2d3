"""`compare --ranks` on the dumps of real processes, which torchrun starts and gloo connects."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn

import rewriter
from capture import Graph, compile_case
from comparisons import find, kernel_changed
from models import Case
from rewriter.comparison.dumps.ranks import Ranks, compare_ranks
from rewriter.dump.dataflow import OUTPUTS

ROOT = Path(__file__).parents[2]
REDUCE = "torch.ops._c10d_functional.all_reduce_.default"
WAIT = "torch.ops._c10d_functional.wait_tensor.default"

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not dist.is_available(), reason="a torch without torch.distributed"),
]


class Replica(nn.Module):
    """A kernel of the weight alone, a product, a sum over all ranks, and what follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x @ torch.tanh(self.weight))
        total = collectives.all_reduce(y.sum(0), "sum", dist.group.WORLD)
        return total * 0.5 - 1, y * 2


def scaled(source: str, rank: int) -> str:
    """On rank 1, the kernel of the weight writes 1% too much."""
    if rank == 0:
        return source
    wrong = "(tmp1 * decltype(tmp1)(1.01f)).store("
    return kernel_changed(source, find(source, "tanh"), "tmp1.store(", wrong)


def apart(source: str, rank: int) -> str:
    """Every rank adds over a group that holds nobody else."""
    assert source.count("'sum', '0'") == 1
    return source.replace("'sum', '0'", f"'sum', '{rank + 1}'")


def killed(source: str, rank: int) -> str:
    """Rank 1 ends before it waits for the others."""
    line = next(line for line in source.splitlines() if line.strip().startswith(WAIT))
    indent = line[: len(line) - len(line.lstrip())]
    kill = f"{indent}__import__('os').kill(__import__('os').getpid(), 9)\n"
    return source if rank == 0 else source.replace(line, kill + line)


def plain(source: str, rank: int) -> str:
    return source


# What is planted, by rank, and whether each has data of its own. The last one ends all processes.
CASES: dict[str, tuple[Callable[[str, int], str], bool]] = {
    "equal": (plain, False),
    "data": (plain, True),
    "fault": (scaled, False),
    "data and fault": (scaled, True),
    "collective": (apart, True),
    "killed": (killed, False),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        with torch.no_grad():
            (compiled,) = compile_case(Case(Replica(), (torch.randn(8, 16),))).graphs
    finally:
        dist.destroy_process_group()
    return compiled


@pytest.fixture(scope="module")
def dumps(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `CASE/dump` is the dump of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(1)
    data = torch.randn(2, 8, 16)
    for case, (plant, own) in CASES.items():
        for rank in range(2):
            path = folder / case / f"rank{rank}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(plant(graph.source, rank))
            path.write_bytes(rewriter.instrument(path, rewriter.select("names,hash")).source)
            torch.save(_with(graph.args, data[rank * own]), path.with_suffix(".pt"))
    names = os.pathsep.join(str(ROOT / name) for name in ("", "fixtures", "tests"))
    environment = {**os.environ, "PYTHONPATH": names, "REWRITER_QUIET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*TORCHRUN, str(ROOT / "tests/support/replicas.py"), str(folder), *CASES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    return folder


def _with(args: Sequence[torch.Tensor], data: torch.Tensor) -> list[torch.Tensor]:
    return [data if value.shape == data.shape else value for value in args]


def compared(folder: Path, case: str) -> Ranks:
    return compare_ranks(folder / case / "dump")


def blamed(found: Ranks) -> dict[str, str]:
    """Of the launches of rank 1 that differ from those of rank 0, which is to blame."""
    (comparison,) = found.comparisons
    return {x.place.kernel: x.blame for x in comparison.launches if x.blame and x.a}


def test_replicas_that_are_equal(dumps: Path) -> None:
    found = compared(dumps, "equal")
    assert (found.ranks, found.first, found.given) == ((0, 1), None, ())
    assert blamed(found) == {}


def test_a_planted_difference_is_found(dumps: Path, graph: Graph) -> None:
    found = compared(dumps, "fault")
    assert found.first is not None
    assert (found.first.rank, found.first.reason) == (1, "launch")
    assert found.first.launch.place.launch == find(graph.source, "tanh")
    kinds = blamed(found)
    assert [name for name, blame in kinds.items() if blame == "culprit"] == ["cpp_fused_tanh_0"]
    assert kinds[OUTPUTS] == "downstream"
    assert found.given == ()


def test_data_of_its_own_is_told_from_a_fault(dumps: Path, graph: Graph) -> None:
    (name,) = [f"arg{at}_1" for at, x in enumerate(graph.args) if x.shape == (8, 16)]
    found = compared(dumps, "data")
    assert found.first is None
    (given,) = found.given
    assert (given.reason, given.run, given.names) == ("data", "rank1/run0", (name,))
    # The sum over both ranks is the same on both again.
    assert {"extern_kernels.mm", OUTPUTS} <= blamed(found).keys()
    assert WAIT not in blamed(found)


def test_a_planted_difference_is_found_among_data_of_its_own(dumps: Path, graph: Graph) -> None:
    found = compared(dumps, "data and fault")
    assert found.first is not None
    assert (found.first.reason, [x.reason for x in found.given]) == ("launch", ["data"])
    assert found.first.launch.place.launch == find(graph.source, "tanh")


def test_a_sum_that_differs_is_named(dumps: Path) -> None:
    found = compared(dumps, "collective")
    assert found.first is not None
    assert (found.first.reason, found.first.names) == ("collective", (REDUCE,))
    assert found.first.launch.place.kernel == WAIT


def test_where_the_record_of_a_killed_rank_ends(dumps: Path, graph: Graph) -> None:
    found = compared(dumps, "killed")
    assert found.first is not None
    assert (found.first.rank, found.first.reason, found.first.run) == (1, "ended", "rank1/run0")
    assert found.first.ended is not None
    assert found.first.ended.launch == find(graph.source, "all_reduce")
    assert blamed(found) == {}
