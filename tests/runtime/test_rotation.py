"""Dumps that rotate: the last calls stay, whole, and no more bytes than were asked for."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter import cli
from rewriter.core.errors import RewriterError
from rewriter.dump import document_files
from rewriter.dump.documents import RunFacts
from rewriter.dump.reading import open_dump
from rewriter.execution import control
from rewriter.runtime import attach
from tables import options, row

TABLE = [row(repeats=True, after=[["out", "y"]])]


def recorder_of(*probes: str, **changes: Any) -> Any:
    return attach(options(*probes, **changes), TABLE)


def call(recorder: Any, value: float = 0.0, elements: int = 2, launches: int = 1) -> None:
    recorder.begin()
    for _ in range(launches):
        recorder.after(0, torch.full((elements,), value))
    recorder.end()


def runs(dump: Path) -> list[int]:
    return sorted(int(path.name[3:]) for path in dump.glob("rank0/run*"))


def size(dump: Path) -> int:
    files = {x.stat().st_ino: x.stat().st_size for x in dump.rglob("*") if x.is_file()}
    return sum(files.values())


def test_the_environment_says_how_many_calls_stay(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_KEEP", "3")
    recorder = recorder_of("hash", last=1)
    for number in range(9):
        call(recorder, number)
        assert runs(dump) == [*range(max(0, number - 2), number + 1)]
    assert not [x for x in os.listdir(dump / "rank0") if not x.startswith("run")]
    for text in ("0", "-1", "two", "9" * 12, "٣"):
        monkeypatch.setenv("REWRITER_KEEP", text)
        call(recorder_of("hash"))
        assert f"REWRITER_KEEP: {text!r} is no number of calls" in capfd.readouterr().err
    assert runs(dump) == [6, 7, 8]


@pytest.mark.parametrize("probe", ["save", "print"])
def test_old_calls_make_room_for_new_ones(dump: Path, probe: str) -> None:
    """The limit holds for rows, tables and tensors, and the last call is there in full."""
    recorder = recorder_of(probe, last=1000, max_bytes="50K", quiet=True)
    for number in range(40):
        call(recorder, number, elements=1000, launches=1 if probe == "save" else 20)
        assert number < 3 or size(dump) <= 50_000 + 2000  # the manifest is apart
    kept = runs(dump)
    assert 3 < len(kept) < 40
    assert kept == list(range(40 - len(kept), 40))
    rows = [json.loads(x) for x in (dump / "rank0/run39/events.jsonl").read_text().splitlines()]
    assert probe != "save" or (
        "file" in rows[0] and (dump / "rank0/run39" / rows[0]["file"]).is_file()
    )


def test_what_several_calls_share_goes_with_the_last_of_them(dump: Path) -> None:
    recorder = recorder_of("save", last=1000, max_bytes="60K")
    for _ in range(60):
        call(recorder, 1.0, elements=5000)  # 20,000 bytes, the same each time
    assert len(runs(dump)) > 20
    assert size(dump) <= 62_000
    assert all(torch.load(x, weights_only=True)[0] == 1 for x in dump.rglob("*.pt"))


def test_without_rotation_rows_have_a_limit(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = recorder_of("hash", max_bytes="5K")
    for number in range(50):
        call(recorder, number)
    kept = runs(dump)
    assert kept == list(range(len(kept)))
    # All calls share one table of launches.
    files = [path.stat() for path in dump.glob("rank0/run*/*")]
    assert 5000 <= sum({file.st_ino: file.st_size for file in files}.values()) < 7000
    error = capfd.readouterr().err
    assert error.count("\n") == error.count("--max-bytes: the rows have 5000 bytes; no more") == 1


def test_nothing_goes_while_somebody_reads(dump: Path) -> None:
    recorder = recorder_of("hash", last=2)
    for number in range(4):
        call(recorder, number)
    opened = open_dump(dump / "rank0")
    for number in range(4, 9):
        call(recorder, number)
    assert [run.number for run in opened.runs] == [2, 3]
    assert all(len(run.steps) == 1 and not run.cut for run in opened.runs)
    assert runs(dump) == list(range(2, 9))
    del opened
    call(recorder, 9)
    assert runs(dump) == [8, 9]


@pytest.mark.exhaustive
def test_who_reads_for_long_holds_nothing_up(dump: Path) -> None:
    recorder = recorder_of("hash", last=2)
    for number in range(4):
        call(recorder, number)
    opened = open_dump(dump)
    call(recorder, 4)
    assert runs(dump) == [2, 3, 4]
    time.sleep(31)
    call(recorder, 5)
    assert runs(dump) == [4, 5]
    with pytest.raises(RewriterError, match="was removed while it was read") as caught:
        list(opened.runs[0].events())
    assert caught.value.slug == "dump-changed"


@pytest.mark.parametrize("keep", [1, 2])
def test_who_reads_before_the_first_call_goes_keeps_it(dump: Path, keep: int) -> None:
    recorder = recorder_of("hash", last=keep)
    recorder.begin()
    recorder.after(0, torch.ones(2))
    opened = open_dump(dump)
    recorder.end()
    for number in range(4):
        call(recorder, number)
    assert runs(dump) == [0, 1, 2, 3, 4]
    assert [len(run.steps) for run in opened.runs] == [1]
    del opened
    call(recorder)
    assert runs(dump) == list(range(6 - keep, 6))


def test_a_call_that_goes_while_it_is_opened_is_none(
    dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_of("hash")
    for number in range(3):
        call(recorder, number)
    facts = document_files.RunTables.facts

    def removed(tables: document_files.RunTables, path: Path) -> RunFacts:
        if path.parent.name == "run1":
            shutil.rmtree(path.parent)
        return facts(tables, path)

    monkeypatch.setattr(document_files.RunTables, "facts", removed)
    assert [run.number for run in open_dump(dump).runs] == [0, 2]


@pytest.mark.parametrize("times", [10, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_a_reader_never_finds_half_a_call(dump: Path, times: int) -> None:
    """While a program writes and removes calls as fast as it can, all that is opened is sound."""
    recorder = recorder_of("save", last=3)
    for _ in range(4):
        call(recorder, launches=5)
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            call(recorder, 1.0, launches=5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(times):
            opened = open_dump(dump)
            for run in opened.runs[:-1]:
                assert run.facts.artifact == "w.py"
                assert [row.launch for row in run.events()] == [0] * 5
                assert all((run.path / row.file).is_file() for row in run.events())  # type: ignore[attr-defined]
            list(opened.runs[-1].events())
            del opened, run
    finally:
        is_over.set()
        writer.join()


@pytest.mark.parametrize("keep", [0, 3])
def test_commands_read_what_is_being_written(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], keep: int
) -> None:
    """A page, trends, and the comparison of two ranks and of two dumps, while both ranks go on."""
    ranks = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        ranks.append(recorder_of("hash", last=keep, quiet=True))
        call(ranks[-1], launches=3)
    for recorder in ranks * 3:
        call(recorder, launches=3)
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            for recorder in ranks:
                call(recorder, launches=3)
            is_over.wait(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for words in (
            ["report", str(dump), "-o", str(dump.parent / "page.html")],
            ["report", str(dump), "--trend", "mean"],
            ["report", str(dump / "rank1"), "--json"],
            ["compare", str(dump), "--ranks"],
            ["compare", str(dump / "rank0"), str(dump / "rank1")],
        ):
            code = cli.main(words)
            said = capfd.readouterr()
            # One may have a call that the other has not made yet.
            assert code in ((0, 1) if words[0] == "compare" else (0,)), said.err
            assert "Traceback" not in said.err
    finally:
        is_over.set()
        writer.join()
    # A line of which the program has written half.
    last = max(dump.glob("rank0/run*"), key=lambda path: int(path.name[3:]))
    with (last / "events.jsonl").open("ab") as file:
        file.write(b'{"launch": 0, "phase": "af')
    assert cli.main(["report", str(dump), "--trend", "mean"]) == 1
    assert "The record is cut short" in capfd.readouterr().out


def test_what_a_killed_process_left_is_removed(dump: Path) -> None:
    left = dump / "rank0/.gone.1.run7"
    left.mkdir(parents=True)
    (left / "events.jsonl").touch()
    recorder = recorder_of("hash", last=1)
    call(recorder)
    call(recorder)
    assert os.listdir(dump / "rank0") == ["run1"]


def test_what_is_switched_on_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, dump = tmp_path / "ctl", tmp_path / "dump"
    monkeypatch.setenv(control.VARIABLE, str(path))
    probed = recorder_of("hash", dormant=True, label="", args="written")

    def calls(count: int) -> None:
        time.sleep(0.06)  # how often they look at the file
        for _ in range(count):
            if probed.due():
                probed.begin()
            if probed.on:
                probed.after(0, torch.ones(2))

    words = ("set", "hash", "-d", str(dump), "--quiet")
    assert cli.main(["control", str(path), *words, "--keep", "2"]) == 0
    calls(7)
    assert runs(dump) == [4, 5, 6]  # the last one is not over yet
    assert cli.main(["control", str(path), *words, "--max-bytes", "1"]) == 0
    calls(3)
    assert runs(dump)[-1] == 7
    assert cli.main(["control", str(path), *words, "--max-bytes", "much"]) == 2
    assert cli.main(["control", str(path), *words, "--keep", "0"]) == 2


def resident() -> int:
    """Bytes of memory that this process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "count", [1500, pytest.param(1_000_000, marks=pytest.mark.exhaustive, id="a million")]
)
@pytest.mark.parametrize("probe", ["hash", "save", "record"])
def test_a_long_run_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, count: int, probe: str) -> None:
    """As of the first 1,000 calls, or tenth: memory and open files do not grow, and the dump has
    five calls, or the ring."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        dump = Path(folder, "dump")
        monkeypatch.setenv("REWRITER_DUMP", str(dump))
        monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
        kept = {"on": ["nan"]} if probe == "record" else {"last": 5, "max_bytes": "1M"}
        recorder = recorder_of(probe, quiet=True, **kept)
        value = torch.zeros(16)
        before = files = 0
        for number in range(count):
            value[0] = number
            recorder.begin()
            recorder.after(0, value)
            recorder.end()
            if number == max(1000, count // 10):
                before, files = resident(), len(os.listdir("/proc/self/fd"))
        assert resident() - before < 8 << 20
        assert len(os.listdir("/proc/self/fd")) <= files
        if probe == "record":
            assert sum(x.stat().st_size for x in dump.rglob("*") if x.is_file()) < 100_000
            return
        assert runs(dump) == list(range(count - 5, count))
        assert size(dump) < 60_000
