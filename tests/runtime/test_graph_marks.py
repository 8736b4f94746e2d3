"""Marks that replays of a CUDA graph leave, with a device that writes as the graph would."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import dumps
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict_text import describe
from rewriter.dump import graph_marks as reading
from rewriter.runtime.graph_marks import FOLDER, GraphMarks

pytestmark = pytest.mark.skipif(not os.path.isdir(FOLDER), reason="no shared memory here")

X, OUT = dumps.value("x"), dumps.value("buf0", "out")
FAULT = ExitStatus(1, message="AcceleratorError: CUDA error: an illegal memory access")


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


class Directory:
    """That of a call, without the engine that saves values."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._events = path / "events.jsonl"

    def note(self, event: Any, facts: dict[str, Any]) -> None:
        from rewriter.runtime.rows import note_row

        with self._events.open("a") as file:
            file.write(note_row(event, facts))


def _capture(dump: Path, launches: int, *, streams: int = 1) -> tuple[GraphMarks, Graph]:
    """The marks of a call whose launches were captured on streams in turn."""
    from rewriter.runtime.event import ProbedLaunch
    from rewriter.runtime.running_call import RunningCall

    graph = Graph()
    marks = GraphMarks(dump, graph)
    call = RunningCall(0, Directory(dump / "rank0/run0"))  # type: ignore[arg-type]
    for index in range(launches):
        launch = ProbedLaunch(index, f"triton_{index}", "triton", False, {})
        for phase in ("before", "after"):
            assert marks.leave(call.event(launch, phase), call, 100 + index % streams)
    return marks, graph


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    table = [(dumps.launch(n, f"triton_{n}", [X], [OUT], kind="triton")[0], []) for n in range(3)]
    path = dumps.write(tmp_path / "dump", table, inputs=[X])
    facts = path / "rank0/run0/run.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"pid": os.getpid()}))
    return path


def test_a_replay_that_came_to_its_end_is_no_launch_that_runs(dump: Path) -> None:
    marks, graph = _capture(dump, 3)
    assert [mark.running for mark in reading.read(dump)] == [None]
    graph.replay()
    (mark,) = reading.read(dump)
    assert (mark.began, mark.ended, mark.running) == ((2, 0), (2, 0), None)
    marks._finish()
    assert reading.read(dump) == (mark,)


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_fault_in_a_replay_names_its_launch(dump: Path, ends: str) -> None:
    marks, graph = _capture(dump, 3)
    graph.replay()
    graph.replay(4)  # one is reset, #0 began and ended, #1 began
    if ends == "by itself":
        marks._finish()
    memory = marks._path
    reading.keep(dump)
    reading.keep(dump)
    assert not os.path.exists(memory)
    (mark,) = reading.read(dump)
    assert (mark.pid, mark.run, mark.running) == (os.getpid(), "rank0/run0", (1, 0))
    status = FAULT if ends == "by itself" else ExitStatus(None, int(signal.SIGABRT))
    (verdict,) = examine(dump, status)
    assert (verdict.state, verdict.launch, verdict.asynchronous) == ("replayed", 1, False)
    text = describe(verdict, next_command="")
    assert "the program ended in launch #1 triton_1 (line 101), in the replay of a CUDA" in text


def test_a_graph_of_one_launch(dump: Path) -> None:
    """What an earlier replay ended with is not what this one did."""
    marks, graph = _capture(dump, 1)
    graph.replay()
    graph.replay(2)
    assert [mark.running for mark in reading.read(dump)] == [(0, 0)]
    marks._finish()


def test_several_streams_are_named_each(dump: Path) -> None:
    marks, graph = _capture(dump, 3, streams=2)
    graph.replay()
    graph.replay(5)
    marks._finish()
    verdicts = examine(dump, FAULT)
    assert [one.launch for one in verdicts] == [0, 1] or [one.launch for one in verdicts] == [1]
    assert all("streams" in " ".join(one.notes) for one in verdicts) == (len(verdicts) > 1)


def test_a_fault_of_the_host_is_no_fault_of_a_replay(dump: Path) -> None:
    marks, graph = _capture(dump, 3)
    graph.replay(4)
    marks._finish()
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


def test_memory_that_cannot_be_registered(tmp_path: Path) -> None:
    class Refuses(Graph):
        def register(self, address: int, size: int) -> bool:
            return False

    before = set(os.listdir(FOLDER))
    assert not GraphMarks(tmp_path, Refuses()).works
    assert set(os.listdir(FOLDER)) <= before
    assert reading.read(tmp_path) == ()
