"""The probe `record`: what a process leaves that dies."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter import cli
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis import triage
from rewriter.dump import flight, recorded
from rewriter.dump.reading import open_dump
from rewriter.dump.ring import read_ring, rings_of
from rewriter.dump.rows import TensorRow
from rewriter.execution import control
from rewriter.execution.conclusion import read_conclusion
from rewriter.instrumentation.select import select
from rewriter.runtime import attach
from rings import VALUE, Ring, build
from tables import options, row

MARK = struct.Struct("<iiQ")  # of a slot: a launch, its iteration, and when
BEGAN_AT, FINISHED_AT = 16, 32  # byte offsets in a slot
# Where a program finds this module, and what it imports.
TESTS = [str(folder) for folder in (Path(__file__).parent, Path(__file__).parents[1] / "support")]

WRAPPER = str(
    Path(__file__).parents[2] / "fixtures/artifacts/cpu-torch2.13/mlp/python/output_code.py"
)
TABLE = [
    row(index, kernel, before=[], after=[["out", "x"]])
    for index, kernel in enumerate(("addmm", "cpp_fused_softmax", "mm"))
]
OPTIONS = options("record", label="", args="written")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("rings"))


@pytest.fixture
def ring(library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ring:
    monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
    return Ring(library, tmp_path)


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes the recorder of a wrapper, whose dump is `tmp_path`."""
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
    made: list[Any] = []

    def make(table: list[dict[str, Any]] = TABLE, **changes: Any) -> Any:
        made.append(attach({**OPTIONS, **changes}, table, ["given"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def died(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """The ring of a process that is gone; of these calls one was in a launch."""
    monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")

    def make(
        folder: Path, *, calls: int = 1, is_left: int | None = None, has_ended: bool = False
    ) -> Path:
        (folder / "record/tables").mkdir(parents=True, exist_ok=True)
        before = {*folder.glob("record/*/ring")}
        if not (child := os.fork()):
            ring = Ring(library, folder)
            for number in range(calls):
                packed = ring.start(number, 1)
                slot = ring.enter(packed)
                if number == is_left:
                    MARK.pack_into(ring.memory, slot + BEGAN_AT, 1, 0, 0)
                    # Calls that follow are another thread's.
                    struct.pack_into("<Q", ring.memory, slot, 4711)
                ring.rows(packed, b'{"launch": 0, "phase": "after", "kernel": "k"}\n')
            if has_ended:
                ring.finish()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        (made,) = {*folder.glob("record/*/ring")} - before
        return made

    return make


def call(probed: Any, *, fail: Callable[[], object] = lambda: None, has_marks: bool = True) -> None:
    """As the injected lines do; `fail` is the second launch."""
    probed.begin()
    probed.inputs(torch.ones(2))
    for launch in range(3):
        if has_marks:
            probed.before(launch)
        if launch == 1:
            fail()
        probed.after(launch, torch.full((2,), float(launch)))


def _raise() -> None:
    raise ValueError("of the kernel")


def _exhaust() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    bytearray(1 << 40)


DEATHS: dict[str, Callable[[], object]] = {
    "exception": _raise,
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGABRT": os.abort,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "memory": _exhaust,
}


def main(how: str) -> None:
    """A program that dies in the second launch of its third call."""
    probed = attach(OPTIONS, TABLE, ["given"])
    call(probed)
    call(probed)
    call(probed, fail=DEATHS[how])


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=() if how in ("exception", "SIGKILL") else pytest.mark.exhaustive)
        for how in DEATHS
    ],
)
def test_what_dies_leaves_its_last_launches(how: str, tmp_path: Path) -> None:
    program = f"import sys; sys.path[:0] = {TESTS}\n"
    program += f"import test_record; test_record.main({how!r})"
    dump = tmp_path / "dump"
    environment = {**os.environ, "REWRITER_DUMP": str(dump), "REWRITER_RECORD_BYTES": "64Ki"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        check=False,
        capture_output=True,
    )
    ended = ExitStatus.of(ran.returncode)
    if how.startswith("SIG"):
        assert ended.signal == signal.Signals[how]
    else:
        assert ended.code == (3 if how == "exit" else 1), ran.stderr
    opened = open_dump(dump)
    assert [run.facts.call for run in opened.runs] == [0, 1, 2]
    assert [str(step) for step in opened.runs[1].steps] == ["inputs", "#0", "#1", "#2"]
    (row,) = (x for x in opened.runs[1].rows(opened.runs[1].steps[3]) if isinstance(x, TensorRow))
    assert (row.arg, row.min, row.max, len(row.fingerprint or "")) == ("x", 2.0, 2.0, 32)
    assert [str(step) for step in opened.runs[2].steps] == ["inputs", "#0", "#1"]
    (verdict,) = triage.examine(opened, ended)
    assert (verdict.launch, verdict.kernel, verdict.state) == (1, "cpp_fused_softmax", "running")
    assert verdict.run == "rank0/run2"
    conclusion = read_conclusion(dump)
    assert conclusion is not None
    if how == "exception":
        assert conclusion.ended.message == "ValueError: of the kernel"
    elif how == "memory":
        assert conclusion.ended.message.startswith("MemoryError")
    else:
        assert conclusion.ended.message == "it did not end by itself"
    assert not list(dump.glob("record/*/ring"))  # its runs are in its place


def test_a_process_that_ends_leaves_what_hash_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {}
    for probe in ("record", "hash"):
        monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / probe))
        probed: Any = attach({**OPTIONS, "probes": [probe], "quiet": True}, TABLE, ["given"])
        for _ in range(3):
            call(probed, has_marks=probe == "record")
        probed.close()
        rows[probe] = [
            (run.path / "events.jsonl").read_bytes() for run in open_dump(tmp_path / probe).runs
        ]
    last = rows["record"].pop()  # says that the process, which lives, is in no launch
    before = b'{"launch": 2, "phase": "before", "kernel": "mm"}\n'
    assert last.replace(before, b"") == rows["hash"].pop()
    assert rows["record"] == rows["hash"]
    assert list((tmp_path / "record").glob("record/*/ring"))


def test_the_ring_stays_within_its_bounds_while_it_is_read(ring: Ring) -> None:
    """100,000 records by two threads: the file stays as long, the latest rows are there, and a
    reader meanwhile gets whole rows of each call in order."""
    size, count = ring.path.stat().st_size, 50_000

    def write() -> None:
        packed = ring.start(threading.get_native_id(), 1)
        for number in range(count):
            ring.rows(packed, b'{"n": %d}\n' % number)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    readings = 0
    while any(thread.is_alive() for thread in threads) or not readings:
        check(ring.path)
        readings += 1
    for thread in threads:
        thread.join()
    assert max(numbers[-1] for numbers in check(ring.path)) == count - 1
    assert ring.path.stat().st_size == size == flight.DATA_AT + (64 << 10)


def check(path: Path) -> list[list[int]]:
    recording = read_ring(path)
    assert recording is not None
    result = []
    for one in recording.calls:
        numbers = [int(row[6:-2]) for row in one.rows]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        result += [numbers] if numbers else []
    return result


def test_a_damaged_ring_is_read_as_far_as_it_goes(ring: Ring, tmp_path: Path) -> None:
    packed = ring.start(0, 1)
    ring.rows(packed, b"{}\n")
    data = bytearray(ring.path.read_bytes())
    for change in (
        lambda d: d[:100],
        lambda d: b"",
        lambda d: d[:-1],
        lambda d: b"nothing!" + d[8:],
        lambda d: d[:16] + b"\xff" * 8 + d[24:],
    ):
        (tmp_path / "damaged").write_bytes(change(data))
        assert read_ring(tmp_path / "damaged") is None
    for at in range(24, 40):  # head, tail
        (tmp_path / "damaged").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        read_ring(tmp_path / "damaged")
    wrong = data[: flight.DATA_AT + 48] + b"\xff\xff\xff\xff" + data[flight.DATA_AT + 52 :]
    (tmp_path / "damaged").write_bytes(wrong)
    found = read_ring(tmp_path / "damaged")
    assert found is not None
    assert [one.rows for one in found.calls] == [[]]


def test_a_ring_that_cannot_be_read_stays(
    died: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another version may read it, or who has all of it."""
    ring = died(tmp_path / "dump")
    whole = ring.read_bytes()
    for data in (whole[:-1], whole[:100], b"", whole[:8] + b"\2" + whole[9:]):
        ring.write_bytes(data)
        for words in (["report"], ["triage"]):
            (tmp_path / "dump/manifest.json").write_text("{}")
            assert cli.main([*words, str(tmp_path / "dump"), "--json"]) == 2
            assert "error[corrupt-dump]" in capfd.readouterr().err
        assert ring.read_bytes() == data
    ring.write_bytes(whole)
    assert len(open_dump(tmp_path / "dump").runs) == 1


def test_what_is_no_ring_is_none(died: Callable[..., Path], tmp_path: Path) -> None:
    for number, make in enumerate((Path.mkdir, os.mkfifo)):
        ring = died(tmp_path / f"dump{number}")
        ring.unlink()
        make(ring)
        with pytest.raises(RewriterError) as caught:
            open_dump(tmp_path / f"dump{number}")
        assert caught.value.slug == "not-a-dump"


NO_TABLES = ("[]", "{", '{"run": 5}', '{"table": []}', '{"table": {"launches": [5]}}')


@pytest.mark.parametrize("text", [*NO_TABLES, '{"run": {"host": 1}}'])
def test_a_table_that_is_none_says_nothing(
    died: Callable[..., Path], text: str, tmp_path: Path
) -> None:
    died(tmp_path / "dump")
    (tmp_path / "dump/record/tables/0000000000000001.json").write_text(text)
    (run,) = open_dump(tmp_path / "dump").runs
    assert [str(step) for step in run.steps] == ["#0"]
    assert not run.facts.launches


def test_moments_that_are_none(died: Callable[..., Path], tmp_path: Path) -> None:
    for number, wall in enumerate((0, (1 << 64) - 1)):
        ring = died(tmp_path / f"dump{number}")
        data = bytearray(ring.read_bytes())
        fields = [*flight.HEADER.unpack_from(data)][:-2]
        flight.HEADER.pack_into(data, 0, *fields, wall, 1 << 63)
        ring.write_bytes(data)
        assert len(open_dump(tmp_path / f"dump{number}").runs) == 1


FORKS = """
import os, sys, time
sys.path[:0] = {tests}
import test_record
probed = test_record.attach(test_record.OPTIONS, test_record.TABLE, ["given"])
test_record.call(probed)
if os.fork():
    os.kill(os.getpid(), 9)
test_record.call(probed)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_fork_does_not_look_like_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent is killed while its child lives, which calls the model, too."""
    monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
    program = FORKS.format(tests=TESTS)
    dump = tmp_path / "dump"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "REWRITER_DUMP": str(dump)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    try:
        process.wait()
        assert list(dump.glob("record/*/ring"))
        with pytest.raises(RewriterError) as caught:
            control.rings(str(fork))
        assert caught.value.slug == "not-recorded"
        opened = open_dump(dump)
        assert not list(dump.glob("record/*/ring"))
    finally:
        os.kill(fork, signal.SIGKILL)
        process.communicate()
    (run,) = opened.runs
    assert run.facts.pid != fork
    assert [str(step) for step in run.steps] == ["inputs", "#0", "#1", "#2"]
    conclusion = read_conclusion(dump)
    assert conclusion is not None
    assert conclusion.ended.message == "it did not end by itself"


def test_a_disk_that_is_full_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    probed: Any = attach(OPTIONS, TABLE, ["given"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    call(probed)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    call(probed)
    another: Any = attach(OPTIONS, TABLE, ["given"])
    call(another)
    probed.close()
    another.close()
    assert not list(tmp_path.glob("record/*/*"))
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2  # of each wrapper
    for line in said:
        assert "no room for" in line
        assert line.endswith("File too large; nothing is recorded, and the model runs on")


def test_more_threads_than_marks(ring: Ring) -> None:
    """The marks of who is in no launch go first, those of who did nothing for longest; a launch
    that is running is named to the last, and where one is not, the record says so."""
    packed = [flight.CALL.pack(n, n, 1000 + n, 7, 0) for n in range(1, flight.SLOTS + 4)]
    slots = [ring.enter(one) for one in packed[: flight.SLOTS]]
    assert len({*slots}) == flight.SLOTS

    def mark(number: int, at: int) -> None:
        # Of a moment that is long over for the first ones.
        MARK.pack_into(ring.memory, slots[number] + at, 4, 0, number)

    for number in range(flight.SLOTS):
        mark(number, BEGAN_AT)
    for number in (7, 9):
        mark(number, FINISHED_AT)
    assert ring.enter(packed[flight.SLOTS]) == slots[7]
    mark(7, BEGAN_AT)
    assert ring.enter(packed[flight.SLOTS + 1]) == slots[9]
    mark(9, BEGAN_AT)
    recording = read_ring(ring.path)
    assert recording is not None
    assert not [*recorded.notes_on(recording)]
    assert len(recording.calls) == flight.SLOTS
    assert all(one.has_open_launch for one in recording.calls)
    ring.enter(packed[flight.SLOTS + 2])
    recording = read_ring(ring.path)
    assert recording is not None
    (note,) = recorded.notes_on(recording)
    assert note.startswith("More than 255 threads of process")


def test_marks_of_a_call_within_a_call_are_its_own(
    attached: Callable[..., Any], tmp_path: Path
) -> None:
    """A wrapper that calls another one, which is over by then."""
    outer, inner = attached(), attached(artifact="inner.py")
    call(inner)  # whatever is made at first
    outer.begin()
    outer.inputs(torch.ones(2))
    outer.before(0)
    outer.after(0, torch.ones(2))
    outer.before(1)
    call(inner)
    outer.after(1, torch.ones(2))
    opened = open_dump(tmp_path)
    last = [str(run.steps[-1]) for run in opened.runs if run.artifact == "w.py"]
    assert last == ["#1"]
    outer.before(2)
    (verdict,) = triage.examine(open_dump(tmp_path), ExitStatus(None, signal=9))
    assert (verdict.artifact, verdict.launch, verdict.state) == ("w.py", 2, "running")


def test_the_last_calls_are_taken_and_all_if_they_are_asked_for(
    died: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A directory for each of tens of thousands of tiny calls would cost minutes and a disk."""
    ring = died(tmp_path, calls=50, is_left=3)
    (tmp_path / "manifest.json").write_text('{"format": "rewriter.dump"}')

    def calls(wanted: str = "") -> list[object]:
        monkeypatch.setenv(recorded.VARIABLE, wanted)
        return [run.facts.call for run in open_dump(tmp_path).runs]

    for wrong in ("0", "-1", "all", "9" * 10):
        with pytest.raises(RewriterError) as caught:
            calls(wrong)
        assert caught.value.slug == "bad-number"
    few = [3, *range(40, 50)]  # one that a thread was in, too
    assert calls("10") == calls("10") == few
    monkeypatch.setenv(recorded.VARIABLE, "10")
    assert cli.main(["triage", str(tmp_path)]) == 1
    assert (
        "the last 11 of 50 recorded calls are shown; REWRITER_RECORD_CALLS=50 shows all."
        in capfd.readouterr().out
    )
    for wanted in ("30", "50", ""):
        assert calls(wanted) == sorted({3, *range(50 - int(wanted or 50), 50)})
    assert calls("10") == few
    assert not ring.exists()
    assert len(list((tmp_path / "rank0").iterdir())) == len(few)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_dump_that_cannot_be_written_tells_how_it_ended(
    died: Callable[..., Path],
    is_whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ring = died(tmp_path, calls=2, has_ended=is_whole)
    (tmp_path / "manifest.json").write_text('{"format": "rewriter.dump"}')
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    opening = Path.open

    def refuse(self: Path, mode: str = "r", *more: Any, **others: Any) -> Any:
        if tmp_path in self.parents and mode[0] in "aw":
            raise OSError(errno.EROFS, "Read-only file system")
        return opening(self, mode, *more, **others)

    monkeypatch.setattr(Path, "open", refuse)
    assert cli.main(["triage", str(tmp_path)]) == (0 if is_whole else 1)
    how = "it ended by itself" if is_whole else "it did not end by itself"
    assert how in capfd.readouterr().out
    assert ring.exists()
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_who_did_not_end_well_counts(died: Callable[..., Path], tmp_path: Path) -> None:
    """A process that ended by itself is no crash; beside one that did not it says nothing."""
    (tmp_path / "manifest.json").write_text('{"format": "rewriter.dump"}')
    ends = []
    for has_ended in (True, False, True):
        died(tmp_path, calls=1, has_ended=has_ended)
        ends.append(cli.main(["triage", str(tmp_path)]))
    assert ends == [0, 1, 1]


def test_the_oldest_call_goes_as_a_whole(attached: Callable[..., Any], tmp_path: Path) -> None:
    probed = attached()
    for _ in range(200):
        call(probed)
    runs = open_dump(tmp_path).runs
    assert 5 < len(runs) < 150
    assert [run.facts.call for run in runs] == [*range(200 - len(runs), 200)]
    assert {len(run.steps) for run in runs} == {4}


def of_values(values: list[float], *, given: float = 1.0) -> Callable[[Any], None]:
    """A call whose launches write these."""

    def act(probed: Any) -> None:
        probed.begin()
        probed.inputs(torch.full((2,), given))
        for launch, value in enumerate(values):
            probed.before(launch)
            probed.after(launch, torch.tensor([0.0, value]))

    return act


def of_list(probed: Any) -> None:
    """A value that the engine does not measure by a plan: the way of all probes."""
    probed.begin()
    probed.inputs(torch.ones(2))
    probed.before(0)
    probed.after(0, [torch.tensor([math.nan, 1.0])])


PLAIN = of_values([1.0, 2.0, 3.0])
TRIGGERS: dict[str, tuple[str, list[Callable[[Any], None]], str]] = {
    "nan": ("nan", [PLAIN, of_values([1.0, math.nan, 3.0])], "1 of 2 elements are NaN"),
    "nan of a list": ("nan", [PLAIN, of_list], "1 of 2 elements are NaN"),
    "inf": ("inf", [PLAIN, of_values([1.0, -math.inf, 3.0])], "1 of 2 elements are infinite"),
    "spike": (
        "spike:10x",
        [*[PLAIN] * 9, of_values([1.0, 30.0, 3.0])],
        "max |x| 30 is 15.0 times what is usual",
    ),
    "changed": (
        "changed",
        [PLAIN, of_values([1.0, 9.0, 3.0], given=2.0), of_values([1.0, 2.5, 3.0])],
        "differs from an earlier call with the same inputs",
    ),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_writes_a_dump(
    name: str, attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, with the launch that it is about as the last one; the program goes on."""
    wanted, calls, why = TRIGGERS[name]
    probed = attached(on=[wanted])
    for act in (*calls[:-1], PLAIN, calls[-1], calls[-1], PLAIN):
        act(probed)
    probed.close()
    kind, launch = wanted.partition(":")[0], 0 if name.endswith("list") else 1
    value = "x[0]" if name.endswith("list") else "x"
    at = f"#{launch} {TABLE[launch]['kernel']}, call {len(calls)}"
    (folder,) = (tmp_path / "triggered").iterdir()
    (said,) = capfd.readouterr().err.splitlines()
    assert said == (
        f"[rewriter 0] record: {kind}: {value} of {at}: {why}; the last launches are in {folder}"
    )
    opened = open_dump(folder)
    assert opened.manifest.trigger == f"{kind}: {value} of {at}: {why}"
    assert str(opened.runs[-1].steps[-1]) == f"#{launch}"
    assert opened.runs[-1].facts.call == len(calls)
    assert read_conclusion(folder) is None
    assert cli.main(["triage", str(folder)]) == 0  # no crash
    out = capfd.readouterr().out
    assert "verdict: the program was running" in out
    assert f"written because of {kind}: {value} of {at}: {why}; see it with: rewriter report" in out


@pytest.mark.parametrize("kernel", ["aten.randint.low_out", "aoti_torch_cpu_randint_low_out"])
def test_random_numbers_are_inputs_of_what_changes(
    kernel: str, attached: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Other ones are no finding; what follows from the same ones is."""
    probed = attached([{**TABLE[0], "kernel": kernel}, *TABLE[1:]], on=["changed"])
    for values in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 2.0, 3.0], [4.0, 7.0, 8.0]):
        of_values(values)(probed)
    probed.close()
    (said,) = capfd.readouterr().err.splitlines()
    assert f"changed: x of #1 {TABLE[1]['kernel']}, call 3: " in said


def test_what_is_as_usual_triggers_nothing(
    attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = ["nan", "inf", "changed", "spike:10x", "slow:99999x"]
    probed = attached(on=wanted, allow=["cpp_fused*:x"])
    for turn in range(40):
        of_values([1.0 + turn / 10, math.nan, turn % 3], given=turn)(probed)
    probed.close()
    assert not (tmp_path / "triggered").exists()
    assert capfd.readouterr().err == ""


def test_a_trigger_leaves_earlier_dumps_alone(
    attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also of a process of the same number, as in a container that was started again."""
    earlier = tmp_path / "triggered" / f"nan-{socket.gethostname()}.{os.getpid()}-1"
    earlier.mkdir(parents=True)
    probed = attached(on=["nan"])
    of_values([math.nan, 1.0, 1.0])(probed)
    probed.close()
    assert f"the last launches are in {earlier}.2\n" in capfd.readouterr().err
    assert not list(earlier.iterdir())
    assert len(open_dump(f"{earlier}.2").runs) == 1


def test_a_slow_call_triggers(
    attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    probed = attached(on=["slow:50x"])
    for _ in range(10):
        call(probed)
    call(probed, fail=lambda: time.sleep(0.5))
    call(probed)
    probed.close()
    assert re.fullmatch(
        r"\[rewriter 0\] record: slow: call 10: it took 5\d\d\.\d ms, [0-9.]+ times what is "
        r"usual; the last launches are in .*",
        capfd.readouterr().err.strip(),
    )
    (folder,) = (tmp_path / "triggered").iterdir()
    assert open_dump(folder).runs[-1].facts.call == 10


def test_one_nan_is_one_dump_of_the_launch_where_it_is_first(
    attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All later launches have it, and so have the next call and another wrapper; NaN that are first
    elsewhere, some calls later, are another one."""
    probed, another = (attached(on=["nan", "inf", "changed"]) for _ in range(2))
    of_values([1.0, 1.0, 1.0])(probed)
    for _ in range(3):
        of_values([1.0, math.nan, math.nan])(probed)
        of_values([math.nan, math.nan, math.inf])(another)
    for _ in range(8):
        of_values([1.0, 1.0, 1.0])(probed)
    of_values([math.nan, math.nan, math.nan])(probed)
    probed.close()
    another.close()
    said = [line.partition(": it")[0] for line in capfd.readouterr().err.splitlines()]
    assert [re.sub("; .*", "", line) for line in said] == [
        "[rewriter 0] record: nan: x of #1 cpp_fused_softmax, call 1: 1 of 2 elements are NaN",
        "[rewriter 0] record: nan: x of #0 addmm, call 12: 1 of 2 elements are NaN",
    ]
    assert len(list((tmp_path / "triggered").iterdir())) == 2


def test_a_storm_leaves_dumps_for_later_calls_and_for_others(
    library: ctypes.CDLL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A NaN that is first in another launch each time, in 20,000 calls."""
    monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
    (tmp_path / "manifest.json").write_text("{}")
    for wanted, dumps in (("nan", [1, 11, 111, 1111, 11111]), ("nan,inf,slow:2x", [1, 11, 111])):
        folder = tmp_path / wanted
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
        ring = Ring(library, folder)
        triggers = ring.triggers(wanted)
        for number in range(1, 20_001):
            packed = flight.CALL.pack(number, number, 1, 1, 0)
            value = VALUE.pack(number, 0, 0, True, False, 2, 1, 0, 0.0, 0.0, 0)
            ring.see(triggers, packed, value)
        if "inf" in wanted:
            value = VALUE.pack(0, 0, 0, True, False, 2, 0, 1, 0.0, 0.0, 0)
            ring.see(triggers, packed, value)
        said = capfd.readouterr().err.splitlines()
        calls = [int(re.findall(r"call (\d+):", line)[0]) for line in said if "are in" in line]
        assert calls == dumps + [20_000] * ("inf" in wanted)
        assert len(list((folder / "triggered").iterdir())) == len(calls)
        others = [line for line in said if "are in" not in line]
        assert len(others) == (wanted == "nan")
        assert all(line.endswith("; no more of this process are written") for line in others)


def test_what_runs_is_copied_when_asked(
    attached: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Within a call, from outside: the copy stays as it is, and the process goes on."""
    probed = attached(directory=str(tmp_path / "dump"))
    call(probed)
    command = ["control", str(os.getpid()), "dump", "-d", str(tmp_path / "now"), "--json"]
    call(probed, fail=lambda: cli.main(command))
    printed = json.loads(capfd.readouterr().out)
    assert printed["processes"] == [os.getpid()]
    call(probed)
    # This process has the rings of other tests, too.
    now = [[str(step) for step in run.steps] for run in open_dump(tmp_path / "now").runs]
    assert ["inputs", "#0", "#1"] in now
    for dump, where in (
        ("now", "in launch #1 cpp_fused_softmax"),
        ("dump", "outside of launches, after launch #2"),
    ):
        assert cli.main(["triage", str(tmp_path / dump)]) == 0  # no crash
        assert f"verdict: the program was running {where}" in capfd.readouterr().out
    assert len(open_dump(tmp_path / "dump").runs) == 3
    for number in ("1", "9" * 5000):
        assert cli.main(["control", number, "dump"]) == 2
        assert "error[not-recorded]" in capfd.readouterr().err


def test_a_copy_without_room_leaves_nothing(
    attached: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    call(attached(directory=str(tmp_path / "dump")))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        command = ["control", str(os.getpid()), "dump", "-d", str(tmp_path / "now")]
        assert cli.main(command) == 2
    assert "error[unwritable]" in capfd.readouterr().err
    assert not (tmp_path / "now").exists()
    assert cli.main(command) == 0


def test_a_process_is_asked_whatever_its_dump_is_called(
    attached: Callable[..., Any], tmp_path: Path
) -> None:
    dump = tmp_path / "a\nb\r\u2028 \\ é\udcff"
    call(attached(directory=str(dump)))
    assert [x for x in rings_of(os.getpid()) if x.parents[2] == dump]


def test_what_is_no_trigger_is_refused() -> None:
    for wrong in ("nans", "spike", "spike:x", "spike:1x", "slow:-2", "changed:2", "nan:1"):
        with pytest.raises(RewriterError) as caught:
            select("record", on=wrong)
        assert caught.value.slug == "bad-trigger"
    chosen = select("print", on="nan,spike:2.5x, slow:5")
    assert chosen.probes == ("print", "record")
    assert chosen.on == ("nan", "spike:2.5x", "slow:5")


def test_what_cannot_be_recorded_is_refused() -> None:
    for others, last in ((["save"], 0), (["poison", "print"], 0), ([], 5)):
        with pytest.raises(RewriterError) as caught:
            select(["record", *others], last=last)
        assert caught.value.slug == "not-with-record"


def test_a_trigger_alone_is_of_record_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Dormant or not: nobody asked for other probes."""
    for words in ([], ["--dormant"]):
        out = tmp_path / f"probed{len(words)}.py"
        assert cli.main(["instrument", WRAPPER, *words, "--on", "nan", "-o", str(out)]) == 0
        assert "record around" in capfd.readouterr().err
    words = ["instrument", WRAPPER, "--probe", "save", "--on", "nan", "-o", "-"]
    assert cli.main(words) == 2
    assert "--on adds the probe record, which keeps the last launches" in capfd.readouterr().err


def test_a_wrapper_with_marks(tmp_path: Path) -> None:
    """A line before each launch, without values, and one behind it, with what it wrote."""
    out = tmp_path / "probed.py"
    code = cli.main(["instrument", WRAPPER, "--probe", "record", "-o", str(out)])
    assert code == 0
    text = out.read_text()
    assert ".before(0)" in text
    assert ".after(0, buf0)" in text
