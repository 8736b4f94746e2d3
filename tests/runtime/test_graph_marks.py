"""Marks that replays of a CUDA graph leave, with a device that writes as the graph would."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dumps
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict_text import describe
from rewriter.dump import graph_marks as reading
from rewriter.runtime.bundle import SOURCES

FOLDER = "/dev/shm"
pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not os.path.isdir(FOLDER), reason="no shared memory here"),
]

X, OUT = dumps.value("x"), dumps.value("buf0", "out")
FAULT = ExitStatus(
    1,
    message="AcceleratorError: CUDA error: an illegal memory access",
    place="(noticed at model.py:30)",
)


class Graph:
    """Writes that were captured; a replay runs them up to a fault."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, int]] = []
        self.is_faulty = False

    def register(self, address: int, size: int) -> bool:
        return True

    def write(self, address: int, value: int) -> bool:
        self.writes.append((address, value))
        return True

    def wait(self) -> None:
        if self.is_faulty:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def replay(self, most: int | None = None) -> None:
        for address, value in self.writes[:most]:
            ctypes.c_uint32.from_address(address).value = value
        self.is_faulty = most is not None


CPP = r"""
#include "graph_marks.h"

using namespace inductor_rewriter;

struct Graph : GraphMarks::Device {
  bool (*on_write)(void*, uint32_t) = nullptr;
  bool is_willing = true;
  bool enroll(void*, std::size_t) override { return is_willing; }
  bool write(void* to, uint32_t value, void*) override { return on_write(to, value); }
  void wait() override {}
};

extern "C" {
void* test_make(const char* root, bool (*on_write)(void*, uint32_t), bool is_willing) {
  auto graph = std::make_unique<Graph>();
  graph->on_write = on_write;
  graph->is_willing = is_willing;
  return GraphMarks::make(root, std::move(graph)).release();
}
bool test_leave(void* marks, const char* run, uintptr_t stream, int launch, bool is_over) {
  GraphMarks::Place place{launch, 0, is_over};
  return static_cast<GraphMarks*>(marks)->leave(run, reinterpret_cast<void*>(stream), place);
}
void test_finish(void* marks) { delete static_cast<GraphMarks*>(marks); }
}
"""
_ON_WRITE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint32)


class Marks:
    """The marks of one process."""

    def __init__(self, library: ctypes.CDLL, dump: Path, graph: Graph) -> None:
        self._library, self._dump = library, dump
        self._on_write = _ON_WRITE(graph.write)
        self._marks: int = library.test_make(
            os.fsencode(dump), self._on_write, graph.register(0, 0)
        )
        self.works = bool(self._marks)
        self.memory = ""
        for path in dump.glob("graph-marks-*.jsonl"):
            self.memory = json.loads(path.read_text().splitlines()[0])["memory"]

    def leave(self, launch: int, *, is_over: bool, stream: int) -> bool:
        phase = "after" if is_over else "before"
        row = {"launch": launch, "phase": phase, "kernel": f"triton_{launch}", "captured": True}
        with (self._dump / "rank0/run0/events.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        return bool(self._library.test_leave(self._marks, b"rank0/run0", stream, launch, is_over))

    def finish(self) -> None:
        self._library.test_finish(self._marks)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("marks")
    source = folder / "marks.cpp"
    source.write_text(CPP)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += [f"-I{SOURCES / 'engine'}", str(source), "-o", str(folder / "marks.so")]
    subprocess.run(command, check=True)
    made = ctypes.CDLL(str(folder / "marks.so"))
    made.test_make.restype = ctypes.c_void_p
    made.test_leave.restype = ctypes.c_bool
    made.test_leave.argtypes = (
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_bool,
    )  # fmt: skip
    made.test_finish.argtypes = (ctypes.c_void_p,)
    return made


Make = Callable[[Path, Graph], Marks]


@pytest.fixture
def make(library: ctypes.CDLL) -> Make:
    return partial(Marks, library)


def _capture(make: Make, dump: Path, launches: int, *, streams: int = 1) -> tuple[Marks, Graph]:
    """The marks of a call whose launches were captured on streams in turn."""
    graph = Graph()
    marks = make(dump, graph)
    for index in range(launches):
        for is_over in (False, True):
            assert marks.leave(index, is_over=is_over, stream=100 + index % streams)
    return marks, graph


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    labels = {"before": [["in", "x"]], "after": [["out", "buf0"]]}
    table: list[tuple[dumps.Row, list[dumps.Row]]] = [
        (dumps.launch(n, f"triton_{n}", [X], [OUT], kind="triton", **labels)[0], [])
        for n in range(3)
    ]
    path: Path = dumps.write(tmp_path / "dump", table, inputs=[X])
    facts = path / "rank0/run0/run.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"pid": os.getpid()}))
    return path


def test_a_replay_that_came_to_its_end_is_no_launch_that_runs(make: Make, dump: Path) -> None:
    marks, graph = _capture(make, dump, 3)
    assert [mark.running for mark in reading.read(dump)] == [None]
    graph.replay()
    (mark,) = reading.read(dump)
    assert (mark.began, mark.ended, mark.running) == ((2, 0), (2, 0), None)
    marks.finish()
    assert reading.read(dump) == (mark,)


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_fault_in_a_replay_names_its_launch(make: Make, dump: Path, ends: str) -> None:
    marks, graph = _capture(make, dump, 3)
    graph.replay()
    graph.replay(4)  # one is reset, #0 began and ended, #1 began
    if ends == "by itself":
        marks.finish()
    memory = marks.memory
    reading.keep(dump)
    reading.keep(dump)
    assert not os.path.exists(memory)
    (mark,) = reading.read(dump)
    assert (mark.pid, mark.run, mark.running) == (os.getpid(), "rank0/run0", (1, 0))
    status = FAULT if ends == "by itself" else ExitStatus(None, int(signal.SIGABRT))
    (verdict,) = examine(dump, status)
    assert (verdict.state, verdict.launch, verdict.asynchronous) == ("replayed", 1, False)
    text = describe(verdict, next_command="")
    assert "in launch #1 triton_1 (line 101), in the replay of a CUDA" in text


def _fault_in_a_replay(make: Make, dump: Path) -> Any:
    marks, graph = _capture(make, dump, 3)
    graph.replay()
    graph.replay(4)
    marks.finish()
    (verdict,) = examine(dump, FAULT)
    return verdict


def test_the_call_that_replays_is_the_last_one_with_its_own_inputs(make: Make, dump: Path) -> None:
    """Parts of a wrapper are in the graph; each call runs the rest of it, and has its inputs."""
    given = dumps.value("x", mean=7.0)
    rest = dumps.launch(3, "extern_kernels.mm", [X], [OUT], kind="extern_out")
    for call in (1, 2):
        dumps.write(dump, [rest], inputs=[given], run=call, pid=os.getpid())
    verdict = _fault_in_a_replay(make, dump)
    assert (verdict.launch, verdict.run) == (1, "rank0/run2")
    assert verdict.call == "3rd call of the wrapper"
    x, out = verdict.arguments
    assert (x.name, x.measured.mean, str(x.producer)) == ("x", 7.0, "an input of the call")
    assert (out.name, out.row) == ("buf0", None)
    text = describe(verdict, next_command="")
    assert "3rd call of the wrapper (rank0/run2)" in text
    assert "mean 7" in text


def test_a_replay_that_calls_no_wrapper_has_no_inputs(make: Make, dump: Path) -> None:
    """What was recorded is of the call that captured it, and of replays that ended."""
    verdict = _fault_in_a_replay(make, dump)
    assert verdict.call == "a replay of the graph that the 1st call of the wrapper captured"
    assert [(x.name, x.row) for x in verdict.arguments] == [("x", None), ("buf0", None)]
    assert "mean" not in describe(verdict, next_command="")
    assert verdict.wants == ("", "")  # a run that saves values would have none of these


def test_a_graph_of_one_launch(make: Make, dump: Path) -> None:
    """What an earlier replay ended with is not what this one did."""
    marks, graph = _capture(make, dump, 1)
    graph.replay()
    graph.replay(2)
    assert [mark.running for mark in reading.read(dump)] == [(0, 0)]
    marks.finish()


def test_several_streams_are_named_each(make: Make, dump: Path) -> None:
    marks, graph = _capture(make, dump, 3, streams=2)
    graph.replay()
    graph.replay(5)
    marks.finish()
    verdicts = examine(dump, FAULT)
    assert [one.launch for one in verdicts] == [0, 1] or [one.launch for one in verdicts] == [1]
    assert all("streams" in " ".join(one.notes) for one in verdicts) == (len(verdicts) > 1)


def test_a_fault_of_the_host_is_no_fault_of_a_replay(make: Make, dump: Path) -> None:
    marks, graph = _capture(make, dump, 3)
    graph.replay(4)
    marks.finish()
    assert [x.state for x in examine(dump, ExitStatus(None, int(signal.SIGSEGV)))] == ["over"]


@pytest.mark.parametrize(
    "memory", ["/etc/passwd", "/dev/shm/../../etc/passwd", "/dev/shm/rewriter-marks-", 3, None]
)
def test_a_dump_names_no_other_file(tmp_path: Path, memory: object) -> None:
    row = {"format": "rewriter.graph-marks", "version": 1, "pid": 1, "memory": memory}
    slot = {"slot": 0, "run": "rank0/run0", "stream": 0}
    path = tmp_path / "graph-marks-1.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(slot)}\n")
    assert reading.read(tmp_path) == ()
    reading.keep(tmp_path)
    path.write_text("{\n" * 3)
    assert reading.read(tmp_path) == ()
    reading.keep(tmp_path)


def test_memory_that_cannot_be_registered(library: ctypes.CDLL, tmp_path: Path) -> None:
    class Refuses(Graph):
        def register(self, address: int, size: int) -> bool:
            return False

    before = set(os.listdir(FOLDER))
    assert not Marks(library, tmp_path, Refuses()).works
    assert set(os.listdir(FOLDER)) <= before
    assert reading.read(tmp_path) == ()


def test_a_fork_leaves_the_marks_of_its_process_alone(make: Make, dump: Path) -> None:
    marks, graph = _capture(make, dump, 2)
    graph.replay()
    child = os.fork()
    if not child:
        marks.finish()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.exists(marks.memory)
    marks.finish()
    assert not os.path.exists(marks.memory)
    assert [mark.ended for mark in reading.read(dump)] == [(1, 0)]
