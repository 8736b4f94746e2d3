"""Dormant probes: nothing before they are switched on, and then what was asked for."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter import cli
from rewriter.execution import control
from rewriter.runtime import attach
from tables import options, row

TABLE = [
    row(index, kernel, before=[], after=[["out", "x"]])
    for index, kernel in enumerate(("addmm", "cpp_fused_Softmax", "addmm"))
]
OPTIONS = options("hash", "names", "print", label="", args="written", dormant=True)


PAUSE = 0.06  # wrappers look at the file 20 times a second


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(control.VARIABLE, str(tmp_path / "ctl"))
    return tmp_path / "ctl"


def wrapper() -> Any:
    return attach(OPTIONS, TABLE, ["given"])


def call(probed: Any) -> None:
    """As the injected lines do."""
    if probed.due():
        probed.begin()
    if probed.on:
        probed.inputs(torch.ones(1))
    for launch in range(3):
        if probed.on:
            probed.before(launch)
        if probed.on:
            probed.after(launch, torch.full((2,), float(launch)))


def switch(path: Path, *words: str) -> int:
    code = cli.main(["control", str(path), *words])
    time.sleep(PAUSE)
    return code


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [x for x in capfd.readouterr().out.splitlines() if x.startswith("[rewriter")]


def test_a_wrapper_is_quiet_until_it_is_switched_on(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    probed = wrapper()
    call(probed)
    assert not probed.on
    assert switch(path, "set", "print", "--kernels", "*softmax*", "--calls", "2") == 0
    for _ in range(4):
        call(probed)
    assert not probed.on
    found = lines(capfd)
    assert [x.split(" ")[3] for x in found] == ["1", "1", "2", "2"]
    assert [x.split(" ")[4] for x in found] == ["inputs", "#1"] * 2


def test_each_third_call_goes_into_a_dump(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    probed = wrapper()
    call(probed)
    dump = path.parent / "dump"
    switch(
        path, "set", "hash,names", "--every", "3", "--launches", "0,2", "-d", str(dump), "--quiet"
    )
    for _ in range(7):
        call(probed)
    assert switch(path, "off") == 0
    call(probed)
    assert not probed.on
    assert lines(capfd) == []
    runs = sorted(x.name for x in dump.glob("rank0/run*"))
    assert runs == ["run1", "run4", "run7"]
    rows = [json.loads(x) for x in (dump / "rank0/run4/events.jsonl").read_text().splitlines()]
    assert [x.get("launch") for x in rows] == [None, 0, 0, 2, 2]
    assert "fingerprint" in rows[2]


def test_show_says_what_is_on_and_how_often(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    probed = wrapper()
    switch(path, "set", "names")
    call(probed)
    call(probed)
    capfd.readouterr()
    switch(path, "show", "--json")
    facts = json.loads(capfd.readouterr().out)
    (one,) = facts["wrappers"]
    assert (one["pid"], one["on"], one["recorded"], one["is_current"]) == (
        os.getpid(),
        ["names"],
        2,
        True,
    )
    switch(path, "off")
    call(probed)
    capfd.readouterr()
    switch(path, "show")
    assert "off, 2 calls recorded" in capfd.readouterr().out


BAD = {
    "nothing": b"",
    "another format": b"x",
    "another version": b"rewriter.control 2\nid=a\n",
    "no id": b"rewriter.control 1\n",
    "a number": b"rewriter.control 1\nid=a\ncalls=-1\n",
    "no number": b"rewriter.control 1\nid=a\nevery=0\n",
    "an unknown name": b"rewriter.control 1\nid=a\nx=1\n",
    "no name": b"rewriter.control 1\nid=a\nx\n",
    "a size": b"rewriter.control 1\nid=a\nmax_bytes=0\n",
    "an unknown probe": b"rewriter.control 1\nid=a\nprobes=x\n",
    "too large": b"rewriter.control 1\nid=" + b"a" * control.LARGEST,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_bad_file_is_said_once_and_changes_nothing(
    content: bytes, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    probed = wrapper()
    switch(path, "set", "names")
    call(probed)
    path.write_bytes(content)
    time.sleep(PAUSE)
    for _ in range(3):
        call(probed)
    printed = capfd.readouterr()
    assert printed.out.count("#1") == 4
    assert printed.err.count("nothing was switched") == 1


def test_calls_that_are_not_looked_at_are_counted(path: Path) -> None:
    probed = wrapper()
    call(probed)
    cli.main(["control", str(path), "set", "hash", "-d", str(path.parent / "dump"), "--quiet"])
    numbers = 1
    while not probed.on:
        call(probed)
        numbers += 1
    call(probed)
    probed.end()
    assert numbers > 100
    assert [x.name for x in sorted(path.parent.glob("dump/rank0/run*"))] == [
        f"run{numbers - 1}",
        f"run{numbers}",
    ]


def test_without_a_control_file_no_call_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(control.VARIABLE, raising=False)
    probed = wrapper()
    assert not any(probed.due() for _ in range(100))


def test_others_cannot_switch(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    probed = wrapper()
    switch(path, "set", "names")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o622)
    call(probed)
    assert not probed.on
    assert "others than its owner" in capfd.readouterr().err
    assert switch(path, "set", "names") == 2
    assert "bad-control" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_does_not_count(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    probed = wrapper()
    switch(path, "set", "names")
    os.chown(path, 12345, -1)
    call(probed)
    call(probed)
    assert not probed.on
    assert capfd.readouterr().err.count("belongs to another user; nothing was switched") == 1
    assert switch(path, "off") == 2
    assert "bad-control" in capfd.readouterr().err


def test_what_is_no_file_is_not_read(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(path)  # to read it would wait for who writes
    for target in (path, Path("/dev/zero"), path.parent):
        for words in (["show"], ["off"], ["dump"]):
            assert switch(target, *words) == 2
            assert "error[bad-control]" in capfd.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_where_nothing_can_be_written_that_is_said(
    number: int, path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    switch(path, "set", "names")
    before = path.read_bytes()
    status = Path(f"{path}.d", "gone.json")
    facts = {"host": socket.gethostname(), "pid": 1 << 30, "rank": 0, "wrapper": "w", "id": ""}
    status.write_text(json.dumps({"format": control.STATUS, **facts, "on": [], "recorded": 0}))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, refuse)
        assert switch(path, "off") == 2
        assert switch(path, "show") == 0
    text = capfd.readouterr().err
    assert f"error[unwritable]: cannot write {path}: {os.strerror(number)}" in text
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("--calls", "9" * 20),
        ("--every", "9" * 17),
        ("--keep", "9" * 20),
        ("--for", "999999999d"),
        ("--kernels", "k" * 70_000),
        ("--kernels", "k\nquiet=1"),
    ],
)
def test_what_programs_would_refuse_is_not_written(
    words: tuple[str, str], path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert switch(path, "set", "print", *words) == 2
    assert "error[bad-" in capfd.readouterr().err
    assert not path.exists()


def test_a_rank_that_was_not_named_stays_off(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "3")
    probed = wrapper()
    switch(path, "set", "names", "--ranks", "0-1")
    call(probed)
    assert not probed.on
    switch(path, "set", "names", "--ranks", "2-")
    call(probed)
    assert probed.on
    switch(path, "set", "names", "--for", "1ms")
    threading.Event().wait(0.01)
    call(probed)
    assert not probed.on
    path.unlink()
    call(probed)


def test_threads_are_recorded_whole(path: Path) -> None:
    probed = wrapper()
    dump = path.parent / "dump"
    go = threading.Event()

    def work() -> None:
        while not go.is_set():
            call(probed)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    switch(path, "set", "hash", "--calls", "10", "-d", str(dump), "--quiet")
    while len(list(dump.glob("rank0/run*"))) < 10:
        threading.Event().wait(0.01)
    go.set()
    for thread in threads:
        thread.join()
    call(probed)
    runs = [x.read_text().count("\n") for x in dump.glob("rank0/run*/events.jsonl")]
    assert runs == [4] * 10
    assert not probed.on


def test_a_process_is_found_by_its_number(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert cli.main(["control", str(process.pid), "set", "print"]) == 0
        process.communicate()
    assert path.exists()
    assert cli.main(["control", "1", "show"]) == 2
    assert "no-control" in capfd.readouterr().err


def test_a_probe_that_is_never_dormant_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ctl"
    assert cli.main(["control", str(path), "set", "print,bounds"]) == 2
    assert "error[idle-options]: bounds given" in capsys.readouterr().err
    assert not path.exists()
