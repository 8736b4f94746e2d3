"""Probes that act around a launch, and many processes, without a GPU. `test_cpp_programs.py` has
faults and CUDA graphs, with a stand-in for a device."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
import rewriter
from cpp_driver import options_of, row_of
from harness import call_module, events, load
from rewriter.runtime import attach

HOME = Path(__file__).parents[2]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`recorder("print", "sync")`, with rows of the table after `rows=`; its dump is `tmp_path`."""
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))

    def make(*names: str, rows: list[dict[str, Any]] | None = None) -> Any:
        made = attach(options_of(*names), rows or [row_of(), row_of(13)], ["arg0"])
        made.begin()
        return made

    return make


# --- Order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("names", "sync"), ("print", "save", "sync", "time")])
def test_what_comes_before_is_in_the_dump_before_the_launch(
    names: tuple[str, ...], recorder: Callable[..., Any], tmp_path: Path
) -> None:
    made = recorder(*names)
    made.inputs(torch.ones(3))
    made.before(12, torch.ones(2))
    (given, before) = events(tmp_path)
    assert (given["phase"], given["arg"], given["max"]) == ("inputs", "arg0", 1.0)
    assert (before["phase"], before["shape"], before["max"]) == ("before", [2], 1.0)


def test_a_real_wrapper_with_every_probe_is_bit_equal_and_timed(
    mlp_wrapper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    args = torch.load(mlp_wrapper.parent / "inputs.pt")
    plain = call_module(load(mlp_wrapper.read_bytes(), tmp_path), args)
    probes = "names,print,save,hash,sync,time"
    probed = load(rewriter.instrument(mlp_wrapper, rewriter.select(probes)).source, tmp_path)
    assert call_module(probed, args) == plain
    times = [row for row in events(tmp_path / "dump") if "time" in row]
    launches = rewriter.open(mlp_wrapper).launches
    assert [row["launch"] for row in times] == [launch.index for launch in launches]
    assert {row["time"]["clock"] for row in times} == {"host"}
    ends = [0.0]
    for row in times:
        assert row["time"]["start_us"] >= ends[-1]
        ends.append(row["time"]["start_us"] + row["time"]["duration_us"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_launch_is_timed_on_both_its_sides(
    when: Any, mlp_wrapper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    args = torch.load(mlp_wrapper.parent / "inputs.pt")
    source = rewriter.instrument(mlp_wrapper, rewriter.select("print,time", when=when)).source
    call_module(load(source, tmp_path), args)
    rows = [row for row in events(tmp_path / "dump") if "launch" in row]
    assert {row["phase"] for row in rows if "arg" in row} == {when}
    launches = [launch.index for launch in rewriter.open(mlp_wrapper).launches]
    assert [row["launch"] for row in rows if "time" in row] == launches


# --- Processes ----------------------------------------------------------------------------------

SPAWNED = """
import json, sys
import multiprocessing
import torch
import torch.multiprocessing
from rewriter.runtime import attach

def work(number, table, calls=20):
    recorder = attach(*json.loads(table))
    for _ in range(calls):
        recorder.begin()
        recorder.before(12, torch.full((2,), float(number)))
        recorder.after(12, torch.full((2,), float(number)))
    recorder.end()

class Data(torch.utils.data.Dataset):
    def __init__(self, table):
        self.table = table
    def __len__(self):
        return 2
    def __getitem__(self, index):
        work(5, self.table)
        return index

if __name__ == "__main__":
    table, method, executable = sys.argv[1:]
    multiprocessing.set_executable(executable)
    torch.multiprocessing.start_processes(work, (table,), nprocs=2, start_method=method)
    for start in (method, "fork"):
        loader = torch.utils.data.DataLoader(
            Data(table), num_workers=1, multiprocessing_context=start
        )
        assert len(list(loader)) == 2
    work(7, table, 1)
"""


# Processes that are forked off one that has imported torch and not the rewriter, and new ones.
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    "method", ["forkserver", pytest.param("spawn", marks=pytest.mark.exhaustive)]
)
def test_processes_of_one_rank_share_no_run_and_data_workers_write_nothing(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "program.py").write_text(SPAWNED)
    dump, table = tmp_path / "dump", json.dumps([options_of("print"), [row_of()]])
    about = {"REWRITER_DUMP": dump, "REWRITER_QUIET": 1, "PYTHONPATH": HOME}
    line = [sys.executable, tmp_path / "program.py", table, method, sys.executable]
    ran = programs.run(*line, timeout=200, **about)
    assert "[rewriter" not in ran.stdout + ran.stderr
    assert [path.name for path in dump.glob("rank*")] == ["rank0"]
    values: dict[int, list[list[float]]] = {}
    for run in dump.glob("rank0/run*"):
        pid = json.loads((run / "run.json").read_text())["pid"]
        values.setdefault(pid, []).append([row["max"] for row in events(run)])
    assert sorted(values.values()) == [[[0.0, 0.0]] * 20, [[1.0, 1.0]] * 20, [[7.0, 7.0]]]
