"""Probes that act around a launch, faults, CUDA graphs and many processes, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from cpp_driver import options_of, row_of
from harness import call_module, events, load
from rewriter.runtime import attach, device

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


def test_what_probes_do_is_not_timed(
    recorder: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is read after everything before the launch, and before everything after it."""
    from rewriter.runtime.probes.save import SaveProbe
    from rewriter.runtime.probes.sync import SyncProbe
    from rewriter.runtime.probes.time import TimeProbe

    order: list[str] = []
    for probe, hooks in (
        (SaveProbe, ["at"]),
        (SyncProbe, ["check"]),
        (TimeProbe, ["start", "stop"]),
    ):
        for hook in hooks:

            def note(self: Any, *args: Any, name: str = f"{probe.__name__}.{hook}") -> None:
                order.append(name)

            monkeypatch.setattr(probe, hook, note)
    made = recorder("save", "sync", "time")
    made.before(12, torch.ones(2))
    order.append("launch")
    made.after(12, torch.ones(2))
    assert order == [
        *("SyncProbe.check", "SaveProbe.at", "TimeProbe.start"),
        "launch",
        *("TimeProbe.stop", "SyncProbe.check", "SaveProbe.at"),
    ]


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


# --- Faults -------------------------------------------------------------------------------------

FAULT = "CUDA error: an illegal memory access was encountered"


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`faulty(3)`: the third wait for the device, and all later ones, raise."""

    def plant(number: int) -> None:
        waits = iter(range(1, 1000))

        def wait(where: torch.device) -> None:
            if next(waits) >= number:
                raise RuntimeError(f"{FAULT}\nCompile with `TORCH_USE_CUDA_DSA` …")

        monkeypatch.setattr(device, "of_values", lambda *args: [torch.device("cuda", 0)])
        monkeypatch.setattr(device, "synchronize", wait)

    return plant


def launch_all(made: Any) -> None:
    made.inputs(torch.ones(3))
    for index in (12, 13):
        made.before(index, torch.ones(2))
        made.after(index, torch.ones(2))
    made.begin()
    made._finish()


@pytest.mark.parametrize(
    ("number", "last", "earlier"),
    [
        (3, (12, "after"), False),
        (4, (13, "before"), True),
        (1, (12, "before"), True),
    ],
    ids=["of the launch", "of something in between", "before the first launch"],
)
def test_a_fault_ends_the_record(
    number: int,
    last: tuple[int, str],
    earlier: bool,
    recorder: Callable[..., Any],
    faulty: Callable[[int], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    faulty(number)
    launch_all(recorder("names", "print", "save", "sync"))
    rows = events(tmp_path)
    assert rows[-1] == {
        "launch": last[0],
        "phase": last[1],
        "kernel": "triton_poi_fused_0",
        "error": FAULT,
    }
    assert not any("error" in row for row in rows[:-1])
    assert not any((row.get("launch"), row["phase"]) == last for row in rows[:-1])
    said = capsys.readouterr()
    more = " (of something before this launch)" if earlier else ""
    assert said.err == f"[rewriter 0] #{last[0]} triton_poi_fused_0: {FAULT}{more}\n"
    assert said.out.splitlines()[-1].startswith(f"[rewriter 0] #{last[0]} before")


def test_what_ran_is_told_where_its_statistics_are_lost(
    recorder: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without `sync` the fault is met when the statistics are fetched; here without an engine."""

    def fail(records: Any) -> Any:
        raise RuntimeError(FAULT)

    monkeypatch.setattr("rewriter.runtime.event.collect", fail)
    monkeypatch.setattr("rewriter.runtime.fast_paths.start_queue", lambda: None)
    made = recorder("print")
    made.before(12, torch.ones(2))
    assert [(row["launch"], row["arg"], "max" in row) for row in events(tmp_path)] == [
        (12, "x0", False)
    ]
    assert FAULT in capsys.readouterr().err


# --- CUDA graphs --------------------------------------------------------------------------------


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether the stream seems to be captured. On the CPU a capture runs, as one replay would."""
    state = [False]
    monkeypatch.setattr("rewriter.runtime.device.is_capturing", lambda: state[0])
    monkeypatch.setattr("rewriter.runtime.fast_paths.start_queue", lambda: None)

    def set_state(on: bool) -> None:
        state[0] = on

    return set_state


def test_statistics_of_a_graph_are_those_of_a_replay(
    recorder: Callable[..., Any],
    capturing: Callable[[bool], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = recorder("hash", "names", "print", "save", "sync", "time")
    capturing(True)
    made.begin()
    made.before(12, torch.ones(2))
    made.after(12, torch.full((2,), 5.0))
    assert not [row for row in events(tmp_path) if "arg" in row]
    capturing(False)
    made.begin()
    assert [
        (row["phase"], row["arg"], row["max"], row["captured"], "file" in row, "fingerprint" in row)
        for row in events(tmp_path)
    ] == [("before", "x0", 1.0, True, False, False), ("after", "buf1", 5.0, True, False, False)]
    assert (tmp_path / "rank0/run1/events.jsonl").read_text().count("captured") == 2
    said = capsys.readouterr()
    assert "#12 after  triton_poi_fused_0  out buf1  f32[2]  cpu  min 5 max 5" in said.out
    for part in (
        "hash cannot copy to the host",
        "save cannot copy to the host",
        "sync cannot wait for the device",
        "launches cannot be timed",
        "its replays run no host code",
    ):
        assert said.err.count(part) == 1


def test_inputs_that_were_read_before_a_capture_are_copied_to_the_host_after_it(
    capturing: Callable[[bool], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Parts of a wrapper are captured by themselves; a copy within the capture would end it."""
    from rewriter.runtime import device, event_reader

    fetched: list[bool] = []
    monkeypatch.setattr(event_reader, "_devices", lambda records: {"cuda"} if any(records) else {})
    monkeypatch.setattr("rewriter.runtime.graphs.Graphs.reserve", lambda *_: None)
    fetch = event_reader.fetch_statistics

    def asked(pending: Any) -> None:
        fetched.append(device.is_capturing())
        fetch(pending)

    monkeypatch.setattr(event_reader, "fetch_statistics", asked)
    rows = [row_of(before=[]), row_of(13, before=[])]
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    made: Any = attach(options_of("names", "print", args="written"), rows, ["arg0"])
    made.begin()
    made.inputs(torch.ones(3))
    capturing(True)
    made.before(12)
    made.after(12, torch.full((2,), 5.0))
    made.before(13)
    assert fetched == []
    capturing(False)
    made.before(13)
    assert fetched == [False]
    given = next(row for row in events(tmp_path) if row.get("arg") == "arg0")
    assert (given["phase"], given["max"]) == ("inputs", 1.0)
    assert "warning: inputs" not in capsys.readouterr().err


def test_inputs_within_a_capture_are_measured_by_its_replays(
    recorder: Callable[..., Any], capturing: Callable[[bool], None], tmp_path: Path
) -> None:
    """Also where no probe reads values, and only the dump wants them."""
    made = recorder("names")
    capturing(True)
    made.begin()
    made.inputs(torch.ones(3))
    assert not [row for row in events(tmp_path) if "arg" in row]
    capturing(False)
    made.begin()
    (given,) = [row for row in events(tmp_path) if "arg" in row]
    assert (given["arg"], given["max"], given["captured"]) == ("arg0", 1.0, True)


def test_a_graph_that_was_not_replayed_again_is_not_told_again(
    recorder: Callable[..., Any], capturing: Callable[[bool], None], tmp_path: Path
) -> None:
    made = recorder("print")
    capturing(True)
    made.before(12, torch.ones(2))
    capturing(False)
    for _ in range(3):
        made.begin()
    assert sum(row.get("captured", False) for row in events(tmp_path)) == 1
    ((capture, _),) = made._graphs._captures
    # What each replay does.
    capture._replays.add_(1)
    capture.events[0][1][0].values[4:6] = torch.full((2,), 9.0, dtype=torch.float64).view(
        torch.int64
    )
    made.begin()
    last = [row for row in events(tmp_path) if row.get("captured")]
    assert [row["max"] for row in last] == [1.0, 9.0]
    # A call that ran none of its launches itself replayed them.
    runs = [path.parent.name for path in tmp_path.glob("rank0/*/events.jsonl")]
    told = [
        run for run in runs if "captured" in (tmp_path / f"rank0/{run}/events.jsonl").read_text()
    ]
    assert sorted(told) == ["run0", "run3"]


def test_a_nan_in_a_replay_ends_the_program_in_the_call_that_replayed(
    capturing: Callable[[bool], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is printed, what is written, and the verdict name the same call."""
    from rewriter.diagnosis.nonfinite import examine

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    made: Any = attach(options_of("nan", stop=True, args="written"), [row_of(), row_of(13)], [])
    made.begin()
    capturing(True)
    made.begin()
    made.after(12, torch.ones(2))
    capturing(False)
    made.begin()  # the second call is over, and with it the first replay
    ((capture, _),) = made._graphs._captures
    made.begin()
    capture._replays.add_(1)
    capture.events[0][1][0].values[:4] = torch.tensor([1, 1, 0, 0])  # one of the two is NaN
    with pytest.raises(SystemExit):
        made.begin()
    assert "[rewriter 0] call 3 stopped at #12 triton_poi_fused_0: 1 of 2 elements of buf1" in (
        capsys.readouterr().err
    )
    stopped = json.loads((tmp_path / "stopped.json").read_text())
    (verdict,) = examine(tmp_path)
    assert (verdict.run, verdict.number) == (stopped["run"], 4)
    assert verdict.call.startswith("4th call")


def test_a_replay_that_no_call_made_has_a_run_of_its_own(
    recorder: Callable[..., Any], capturing: Callable[[bool], None], tmp_path: Path
) -> None:
    made = recorder("print")
    capturing(True)
    made.before(12, torch.ones(2))
    capturing(False)
    made.begin()
    made.before(12, torch.zeros(2))
    made._graphs._captures[0][0]._replays.add_(1)
    made._finish()
    found = {
        path.parent.name: [
            (json.loads(line)["max"], "captured" in line) for line in path.read_text().splitlines()
        ]
        for path in tmp_path.glob("rank0/*/events.jsonl")
    }
    assert found == {"run0": [(1.0, True)], "run1": [(0.0, False)], "run2": [(1.0, True)]}


# --- Processes ----------------------------------------------------------------------------------

PROGRAM = """
import importlib.util, sys
import torch
import torch.distributed as dist

def wrapper():
    spec = importlib.util.spec_from_file_location("wrapper", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def args():
    return torch.load(sys.argv[2])

class Data(torch.utils.data.Dataset):
    module = None
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return Data.module.call(args())[0].sum()

if __name__ == "__main__":
    dist.init_process_group("gloo")
    Data.module = wrapper()  # a fork inherits it
    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork")
    assert len(list(loader)) == 2
    inputs = args()
    for value in inputs:
        if value.is_floating_point():
            value.fill_(dist.get_rank() + 1)
    for _ in range(2):
        total = Data.module.call(list(inputs))[0]
        dist.all_reduce(total)
    dist.destroy_process_group()
"""
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

class Data(torch.utils.data.Dataset):
    def __init__(self, table):
        self.table = table
    def __len__(self):
        return 2
    def __getitem__(self, index):
        work(5, self.table)
        return index

if __name__ == "__main__":
    table, method = sys.argv[1:]
    multiprocessing.set_forkserver_preload(["torch"])
    torch.multiprocessing.start_processes(work, (table,), nprocs=2, start_method=method)
    for start in (method, "fork"):
        loader = torch.utils.data.DataLoader(
            Data(table), num_workers=1, multiprocessing_context=start
        )
        assert len(list(loader)) == 2
    work(7, table, 1)
"""


def run_program(
    folder: Path, source: str, args: list[str], *launcher: str
) -> dict[str, list[tuple[int, list[dict[str, Any]]]]]:
    """Run a program that must say nothing; per rank the process and the rows of each run."""
    (folder / "program.py").write_text(source)
    dump = folder / "dump"
    ran = subprocess.run(
        [sys.executable, *launcher, str(folder / "program.py"), *args],
        env={
            **os.environ,
            "REWRITER_DUMP": str(dump),
            "REWRITER_QUIET": "1",
            "PYTHONPATH": str(HOME),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "[rewriter" not in ran.stdout + ran.stderr
    found: dict[str, list[tuple[int, list[dict[str, Any]]]]] = {}
    for path in sorted(dump.glob("rank*/run*")):
        rows = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
        pid = json.loads((path / "run.json").read_text())["pid"]
        found.setdefault(path.parent.name, []).append((pid, rows))
    return found


@pytest.mark.exhaustive
def test_ranks_write_apart_and_forked_data_workers_nothing(
    mlp_wrapper: Path, tmp_path: Path
) -> None:
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_bytes(rewriter.instrument(mlp_wrapper, rewriter.select("names,print")).source)
    found = run_program(
        tmp_path,
        PROGRAM,
        [str(wrapper), str(mlp_wrapper.parent / "inputs.pt")],
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    )
    assert list(found) == ["rank0", "rank1"]
    launches = [
        (launch.index, phase)
        for launch in rewriter.open(mlp_wrapper).launches
        for phase in ("before", "after")
    ]
    for number, rank in enumerate(found.values()):
        assert len(rank) == 2
        assert len({pid for pid, _ in rank}) == 1
        for _, rows in rank:
            ran = [(row["launch"], row["phase"]) for row in rows if "launch" in row]
            assert list(dict.fromkeys(ran)) == launches
            given = [row for row in rows if row["phase"] == "inputs" and "max" in row]
            assert {row["max"] for row in given} == {number + 1.0}
    assert found["rank0"][0][0] != found["rank1"][0][0]


# Processes that are forked off one that has imported torch and nothing else, and new ones.
@pytest.mark.parametrize(
    "method", ["forkserver", pytest.param("spawn", marks=pytest.mark.exhaustive)]
)
def test_processes_of_one_rank_share_no_run_and_data_workers_write_nothing(
    tmp_path: Path, method: str
) -> None:
    table = json.dumps([options_of("print"), [row_of()]])
    found = run_program(tmp_path, SPAWNED, [table, method])
    assert list(found) == ["rank0"]
    values: dict[int, list[list[float]]] = {}
    for pid, rows in found["rank0"]:
        values.setdefault(pid, []).append([row["max"] for row in rows])
    assert sorted(values.values()) == [[[0.0, 0.0]] * 20, [[1.0, 1.0]] * 20, [[7.0, 7.0]]]


def test_many_calls_look_for_a_free_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    tried: list[str] = []
    mkdir = os.mkdir

    def note(path: Any, *args: Any, **options: Any) -> None:
        tried.append(Path(path).name)
        mkdir(path, *args, **options)

    monkeypatch.setattr(os, "mkdir", note)
    one, other = (attach(options_of("names"), [row_of()], []) for _ in range(2))
    for _ in range(20):
        one.begin()
    other.begin()
    other.begin()
    runs = [name for name in tried if name.startswith("run")]
    assert runs == [*(f"run{i}" for i in range(20)), *(f"run{i}" for i in range(22))]
