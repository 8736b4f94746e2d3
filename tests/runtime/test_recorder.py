"""Lines of wrappers in Python: all are printed and recorded, in order, however a program ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rewriter.core import json_text
from rewriter.runtime import attach, build, extension
from rewriter.runtime.build import Unavailable
from tables import options, row

LAUNCHES = 3
TABLE = [
    row(
        index,
        f"k{index}",
        repeats=index == 2,
        before=[["in", "x"], ["inout", "y"]],
        after=[["in", "x"], ["inout", "y"], ["out", "z"], ["in", "n"]],
    )
    for index in range(LAUNCHES)
]


def probes(*names: str, **changes: Any) -> dict[str, Any]:
    """That act before and after launches."""
    return options(*names, **{"when": "both", **changes})


def rows(dump: Path, run: int = 0) -> list[dict[str, Any]]:
    text = (dump / f"rank0/run{run}/events.jsonl").read_text()
    # Strictly: a name stands once in a row.
    return [json_text.parse_object(line.encode()) for line in text.splitlines()]


def test_what_cannot_be_measured_keeps_its_place(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder: Any = attach(probes("print", when="after"), TABLE)
    recorder.begin()
    given = [torch.ones(2), torch.ones(2).to_sparse(), [torch.ones(2), torch.zeros(1)]]
    for launch, value in enumerate(given):
        recorder.after(launch, torch.ones(2), value, None, 1)
    recorder.end()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["#0"] * 3 + ["#1"] * 3 + ["#2"] * 4
    assert [row["launch"] for row in rows(dump)] == [0] * 3 + [1] * 3 + [2] * 4


def test_freed_memory_is_not_read(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder: Any = attach(probes("print", when="after"), TABLE)
    recorder.begin()
    value = torch.ones(1 << 16)[10:]
    recorder.after(0, value, value, value, 1)
    value.untyped_storage().resize_(64)
    recorder.after(0, value, value, value, 1)
    recorder.end()
    assert capsys.readouterr().out.count("not measured") == 3
    assert ["numel" in row for row in rows(dump)[:3]] == [True] * 3


@pytest.mark.parametrize("name", ["print", "hash", "nan"])
def test_zeros_without_memory_are_not_read(
    name: str, dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As derivatives have them: a storage of that size, at no address."""
    recorder: Any = attach(probes(name), TABLE, ["x"])
    for _ in range(2):
        recorder.begin()
        zeros = torch._efficientzerotensor((4,))  # type: ignore[attr-defined]
        assert zeros.untyped_storage().nbytes()
        recorder.inputs(zeros)
        recorder.before(0, zeros, torch.ones(2))
        recorder.after(0, zeros, torch.ones(2), None, 1)
    recorder.end()
    assert all("max" not in row for row in rows(dump, 1) if row["arg"] == "x")


HUNTS: dict[str, dict[str, Any]] = {
    "sync": {},
    "sync,hash": {},
    "sync,print": {"when": "after"},
    "names,hash": {},
    "names,print": {"when": "after"},
    "names,sync,print": {},
    "hash": {"stop": True},
    "nan": {"stop": True, "when": "after"},
}


@pytest.mark.parametrize("names", HUNTS)
def test_nothing_waits_where_a_crash_is_hunted(names: str, dump: Path) -> None:
    """The next launch may be the last thing that the program does: also what could be measured
    with its values has its rows when the line behind a launch returns."""
    table = [row | {"together": True} for row in TABLE]
    recorder: Any = attach(probes(*names.split(","), **HUNTS[names]), table)
    for call in range(2):  # the second takes the short way, where there is one
        recorder.begin()
        for launch in (0, 1):
            if HUNTS[names].get("when") != "after":
                recorder.before(launch, torch.ones(3), torch.ones(2))
            recorder.after(launch, torch.ones(3), torch.ones(2), torch.ones(4), 2)
            written = rows(dump, call)
            assert (written[-1]["launch"], written[-1]["phase"]) == (launch, "after")
    recorder.end()


def test_names_follow_what_the_program_printed(capfd: pytest.CaptureFixture[str]) -> None:
    recorder: Any = attach(probes("names", when=None), TABLE)
    for call in range(2):
        print(f"call {call}")
        recorder.begin()
        for launch in (0, 1, 2, 2):
            recorder.before(launch)
            print("ran", end=";")
        print()
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == ["call 0", "[rewriter 0] #0 before k0", "ran;[rewriter 0] #1 before k1"]
    assert lines[4] == "ran;[rewriter 0] #2.1 before k2"
    assert lines[7] == "[rewriter 0] call 1 #0 before k0"


def test_lines_follow_what_the_program_printed_before_the_call(
    capfd: pytest.CaptureFixture[str],
) -> None:
    recorder: Any = attach(probes("print", when="before"), TABLE)
    print("first", end="")
    recorder.begin()
    recorder.before(0, torch.ones(2), None)
    recorder.end()
    print("last")
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "first[rewriter",
        "last",
    ]


def test_an_input_that_was_given_another_form_has_that(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the same address, and without that torch counts a write."""
    recorder: Any = attach(probes("print"), TABLE, ["weight", "n", "x"])
    weight = torch.arange(6.0).view(2, 3)
    whole = weight.data
    forms = [whole, whole, whole.t(), whole[:1], whole[:1], whole.view(torch.int32), whole]
    for call, form in enumerate(forms):
        weight.data = form
        recorder.begin()
        recorder.inputs(weight, 7, torch.full((2,), float(call)))
        given, _, x = rows(dump, call)
        assert (given["shape"], given["dtype"]) == ([*form.shape], str(form.dtype)[6:])
        assert (given["max"], x["max"]) == (float(form.max()), float(call))


def test_threads_have_calls_of_their_own(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder: Any = attach(probes("print", "hash", when="after"), TABLE)
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            recorder.begin()
            for launch in range(LAUNCHES):
                value = torch.full((number + 1,), float(number))
                recorder.after(launch, value, value, value, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()  # no thread begins another call
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 6 * 5 * LAUNCHES * 4
    assert all(line.startswith("[rewriter 0] ") and line.count("[rewriter") == 1 for line in lines)
    for run in range(30):
        found = rows(dump, run)
        assert [row["launch"] for row in found] == [0] * 4 + [1] * 4 + [2] * 4
        assert len({row["value"] for row in found if "value" in row}) == 1


def test_quiet(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_QUIET", "1")
    for names in (("names",), ("print",), ("names", "hash")):
        recorder: Any = attach(probes(*names, when="before"), TABLE)
        recorder.begin()
        recorder.before(0, torch.ones(2), torch.ones(2))
        recorder.end()
    assert capfd.readouterr().out == ""
    assert [len(rows(dump, run)) for run in range(3)] == [1 if run == 0 else 2 for run in range(3)]


@pytest.mark.parametrize("names", [("names",), ("print",), ("names", "hash"), ("sync", "print")])
def test_a_process_without_standard_output_is_recorded(
    names: tuple[str, ...],
    dump: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    recorder: Any = attach(probes(*names, when="before"), TABLE)
    recorder.begin()
    recorder.before(0, torch.ones(2), torch.ones(2))
    recorder.end()
    assert capfd.readouterr() == ("", "")
    assert rows(dump)


def test_nothing_is_kept_of_values() -> None:
    recorder: Any = attach(probes("hash", when="before", quiet=True), TABLE)
    x = torch.ones(4)
    before = sys.getrefcount(x)
    for _ in range(50):
        recorder.begin()
        recorder.before(0, x, x)
        recorder.before(1, [x, x], x)
    recorder.end()
    assert sys.getrefcount(x) == before


def test_an_interrupt_gets_through() -> None:
    class Value:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    recorder: Any = attach(probes("print", quiet=True), TABLE)
    recorder.begin()
    with pytest.raises(KeyboardInterrupt):
        recorder.before(0, torch.ones(2), Value())
    recorder.before(0, torch.ones(2), torch.ones(2))
    recorder.end()


def test_a_value_that_cannot_be_shown_is_one_warning(
    dump: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Value:
        def __repr__(self) -> str:
            raise ValueError("of the model")

    recorder: Any = attach(probes("print"), TABLE)
    recorder.begin()
    recorder.before(0, torch.ones(2), Value())
    recorder.before(1, torch.ones(2), torch.ones(2))
    recorder.end()
    assert capfd.readouterr().err == "[rewriter] warning: ValueError: of the model\n"
    shown = [(one["launch"], one.get("value")) for one in rows(dump)]
    assert shown == [(0, None), (0, "?"), (1, None), (1, None)]


def test_without_headers_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    found = extension.load.__wrapped__()
    assert isinstance(found, Unavailable)
    assert "python3-dev" in str(found)


def test_a_damaged_module_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = extension.load()
    assert isinstance(loaded, ModuleType)
    kept = Path(str(loaded.__file__))
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path))
    (tmp_path / "engine").mkdir()
    damaged = tmp_path / "engine" / kept.name
    damaged.write_bytes(b"no library")
    # Two seconds of the compiler, whose result is there.
    monkeypatch.setattr(build, "build", lambda *arguments: shutil.copy(kept, arguments[3]))
    monkeypatch.setattr(extension, "_use", lambda *_: None)
    found = extension.load.__wrapped__()
    assert isinstance(found, ModuleType)
    assert found.__file__ == str(damaged)
    assert damaged.read_bytes() == kept.read_bytes()


# --- Processes that end one way or the other ------------------------------------------------------

START = f"""
import os, signal, sys, threading, time
import torch
from rewriter.core import json_text
from rewriter.runtime import attach
sys.stdout.reconfigure(encoding="utf-8")
TABLE = {TABLE!r}
BARE = [{{**row, "before": []}} for row in TABLE]
def probes(*names, **changes):
    return {{**{probes()!r}, "probes": list(names), **changes}}
def launch(recorder, number, size=4):
    recorder.before(number % 3, torch.ones(size), torch.ones(size))
    recorder.after(number % 3, torch.ones(size), torch.ones(size), torch.zeros(size), number)
"""


def program(text: str, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "REWRITER_DUMP": str(folder / "dump"),
    }
    command = [sys.executable, "-c", START + text]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, **more
    )


ENDS: dict[str, tuple[str, int]] = {
    "returns": ("", 0),
    "exits": ("sys.exit(3)", 3),
    "raises": ("raise RuntimeError('of the model')", 1),
    "terminated": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); os.kill(os.getpid(), 15)",
        5,
    ),
    "interrupted": (
        "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), 2)",
        -signal.SIGINT,
    ),
}


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS)
def test_nothing_is_lost_however_a_program_ends(end: str, code: int, tmp_path: Path) -> None:
    ran = program(
        f"recorder = attach(probes('print', 'hash'), TABLE); recorder.begin()\n"
        f"for number in range(90): launch(recorder, number)\n{end}\n",
        tmp_path,
    )
    assert ran.returncode in (code, 128 + abs(code)), ran.stderr
    # What a launch only reads is shown before it, but for the number, which is new.
    assert len(ran.stdout.splitlines()) == 90 * (2 + 3), ran.stderr
    assert len(rows(tmp_path / "dump")) == 90 * (2 + 4)


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGSEGV)"])
@pytest.mark.parametrize("names", ["'names'", "'names', 'print'", "'names', 'hash'"])
def test_a_crash_leaves_all_names_and_what_was_measured(
    end: str, names: str, tmp_path: Path
) -> None:
    ran = program(
        f"recorder = attach(probes({names}, when=None, args='written'), BARE)\n"
        "recorder.begin()\n"
        f"for number in range(30):\n"
        f"    recorder.before(number % 3)\n"
        f"    if number == 29: {end}\n"
        + (
            "    recorder.after(number % 3, *[torch.ones(4)] * 3, number)\n" if "," in names else ""
        ),
        tmp_path,
    )
    assert ran.returncode < 0
    lines = ran.stdout.splitlines()
    assert len([line for line in lines if " before " in line]) == 30, ran.stderr
    assert lines[-1] == "[rewriter 0] #2.9 before k2"
    if "," in names:
        assert len([line for line in lines if " after " in line]) >= 29 * 3
        assert len([row for row in rows(tmp_path / "dump") if row["phase"] == "after"]) == 29 * 4
    assert len([row for row in rows(tmp_path / "dump") if row["phase"] == "before"]) == 30


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_fork_says_nothing_and_ends(tmp_path: Path) -> None:
    ran = program(
        "recorder = attach(probes('print'), TABLE); recorder.begin()\n"
        "launch(recorder, 0)\n"
        "child = os.fork()\n"
        "launch(recorder, 1)\n"
        "if not child:\n"
        "    other = attach(probes('print', label='child'), TABLE); other.begin()\n"
        "    launch(other, 0); sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "launch(recorder, 2)\n",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len([line for line in lines if line.startswith("[rewriter 0] #")]) == 3 * 5
    # A wrapper that the fork itself attaches is one of its own.
    assert len([line for line in lines if line.startswith("[rewriter 0] child call 0 #0")]) == 5
    assert "a fork of the probed process is not recorded" in ran.stderr


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("names", ["'print'", "'hash'", "'names'"])
def test_a_full_disk_is_one_warning(names: str, tmp_path: Path) -> None:
    ran = program(
        "import resource\n"
        f"recorder = attach(probes({names}), TABLE); recorder.begin()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "for number in range(90): launch(recorder, number)\n"
        "print('went on')\n",
        tmp_path,
    )
    assert ran.returncode == 0
    assert ran.stdout.endswith("went on\n")
    assert ran.stderr.count("warning") == 1, ran.stderr
    assert "no more rows of this call" in ran.stderr
    text = (tmp_path / "dump/rank0/run0/events.jsonl").read_text()
    assert text.endswith("}\n")
    assert 4000 < len(text) <= 5000
    assert len(rows(tmp_path / "dump")) > 15


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("names", ["'print'", "'names'"])
def test_nobody_reads_any_more(names: str, tmp_path: Path) -> None:
    ran = program(
        "end, other = os.pipe(); os.dup2(other, 1); os.close(end); os.close(other)\n"
        f"recorder = attach(probes({names}), TABLE); recorder.begin()\n"
        "for number in range(90): launch(recorder, number)\n"
        "sys.stderr.write('went on')\n",
        tmp_path,
    )
    assert ran.stderr.count("warning") == 1, ran.stderr
    assert "Broken pipe" in ran.stderr
    assert "went on" in ran.stderr
    assert len(rows(tmp_path / "dump")) >= 90


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("names", ["'print'", "'names'"])
def test_the_model_waits_for_a_slow_reader(names: str, tmp_path: Path) -> None:
    text = (
        f"recorder = attach(probes({names}), TABLE); recorder.begin()\n"
        "for number in range(6000):\n"
        "    launch(recorder, number)\n"
        "    if number % 100 == 0: os.pwrite(2, b'%8d' % number, 0)\n"
    )
    progress = tmp_path / "progress"
    with (
        progress.open("w") as error,
        subprocess.Popen(
            [sys.executable, "-c", START + text],
            stdout=subprocess.PIPE,
            stderr=error,
        ) as process,
    ):
        assert process.stdout is not None
        seen = -1
        for _ in range(100):
            time.sleep(0.1)
            now = int(progress.read_text() or -1)
            if now == seen and now >= 0:
                break
            seen = now
        assert 0 <= seen < 5000
        out = process.stdout.read()
        assert process.wait(60) == 0
    assert len(out.splitlines()) >= 6000
