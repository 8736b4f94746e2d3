"""Work that is shared among processes gives what it gives in one."""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

import rewriter
from artifacts import get
from rewriter import cli
from rewriter.core import parallel
from rewriter.core.errors import RewriterError

SIZES = [100_000] * 7


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as processes, whatever the machine has."""
    monkeypatch.setattr(parallel, "_cores", lambda: 3)
    monkeypatch.setattr(parallel, "_can_fork", lambda: True)


def own(value: int) -> tuple[int, int]:
    return value, os.getpid()


def test_results_come_in_order_from_several_processes() -> None:
    found = list(parallel.results(own, range(7), [100_000, 900_000, 1, 1, 1, 1, 1]))
    assert [one[0] for one in found if one] == list(range(7))
    processes = {one[1] for one in found if one}
    assert len(processes) == 3
    assert os.getpid() not in processes


@pytest.mark.parametrize(
    ("values", "size"), [(range(7), 10), (range(2), 1_000_000)], ids=["little", "few"]
)
def test_little_work_is_not_shared(values: range, size: int) -> None:
    assert list(parallel.results(own, values, [size] * len(values))) == [None] * len(values)


def test_one_core_and_other_threads_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert list(parallel.results(own, range(7), SIZES)) == [None] * 7
    finally:
        ended.set()
        thread.join()
    monkeypatch.setattr(parallel, "_cores", lambda: 1)
    assert list(parallel.results(own, range(7), SIZES)) == [None] * 7


def fail(value: int) -> int:
    if value == 2:
        raise RewriterError("no-probes", "nothing")
    if value == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def test_what_fails_or_dies_is_left_to_who_asked() -> None:
    found = list(parallel.results(fail, range(7), SIZES))
    assert found[2] is None
    assert found[4] is None
    assert {1, 3, 5} & set(found) or {0, 6} & set(found)
    assert all(one in (None, position) for position, one in enumerate(found))


def linger(value: int) -> int:
    time.sleep(60)
    return value


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are started."""
    processes: list[int] = []
    fork = os.fork

    def record() -> int:
        if process := fork():
            processes.append(process)
        return process

    monkeypatch.setattr(os, "fork", record)
    return processes


def assert_ended(processes: list[int]) -> None:
    for process in processes:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def test_who_stops_asking_leaves_no_process(
    forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.connection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(parallel.results(linger, range(7), SIZES))
    assert len(forked) == 3
    assert_ended(forked)


@pytest.mark.parametrize("number", [1, 3])
def test_an_interrupt_as_processes_start_leaves_none(
    number: int, forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = os.fork

    def interrupted() -> int:
        process = fork()
        if process and len(forked) == number:
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(os, "fork", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(parallel.results(linger, range(7), SIZES))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(forked) == number
    assert_ended(forked)


def ask(stopped: threading.Event) -> tuple[int, bool]:
    return os.getpid(), stopped.is_set()


@pytest.mark.parametrize("forks", [True, False])
def test_work_beside_a_body(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_can_fork", lambda: forks)
    with parallel.beside(ask) as result:
        process, is_stopped = result()
        assert result() == (process, is_stopped)
    assert (process != os.getpid()) == forks
    assert not is_stopped


@pytest.mark.parametrize("forks", [True, False])
def test_work_that_fails_beside_a_body_raises_where_it_is_asked_for(
    forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_can_fork", lambda: forks)

    def refuse(stopped: threading.Event) -> NoReturn:
        raise RewriterError("no-probes", "nothing")

    with parallel.beside(refuse):
        pass  # nobody asks
    with parallel.beside(refuse) as result, pytest.raises(RewriterError) as caught:
        result()
    assert caught.value.slug == "no-probes"


def test_what_a_process_that_was_killed_did_is_done_again() -> None:
    parent = os.getpid()

    def die(stopped: threading.Event) -> int:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return 7

    with parallel.beside(die) as result:
        assert result() == 7


@pytest.mark.parametrize("name", ["fork", "pipe"])
def test_without_another_process_who_asks_does_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise BlockingIOError

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, name, refuse)
    with parallel.beside(ask) as result:
        assert result() == (os.getpid(), False)
    assert list(parallel.results(own, range(7), SIZES)) == [None] * 7
    assert os.listdir("/proc/self/fd") == before


def test_what_the_work_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "process"

    def start(stopped: threading.Event) -> None:
        with subprocess.Popen(["sleep", "60"]) as process:
            file.write_text(str(process.pid), encoding="ascii")

    with parallel.beside(start):
        while not (file.exists() and file.read_text(encoding="ascii")):
            time.sleep(0.01)
    status = Path("/proc", file.read_text(encoding="ascii"), "status")
    for _ in range(500):
        if not status.exists() or "State:\tZ" in status.read_text(encoding="ascii"):
            return
        time.sleep(0.01)
    raise AssertionError("it is still running")


def test_a_program_that_ignores_its_children_may_work_beside() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with parallel.beside(ask) as result:
            assert result()[0] != os.getpid()
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_end_of_a_body_ends_the_work_beside_it(
    forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt), parallel.beside(lambda stopped: time.sleep(60)):
        raise KeyboardInterrupt
    assert len(forked) == 1
    assert_ended(forked)
    monkeypatch.setattr(parallel, "_can_fork", lambda: False)
    told: list[bool] = []
    with parallel.beside(lambda stopped: told.append(stopped.wait(60))):
        pass
    assert told == [True]


def test_a_directory_is_the_same_with_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fixtures = ("cpu-torch2.13/mlp", "cpu-torch2.13/customop")
    monkeypatch.setattr(parallel, "_SIZE", 0)
    for number, name in enumerate(fixtures * 2):
        fixture = get(name)
        path = tmp_path / "in" / str(number) / fixture.path.name
        path.parent.mkdir(parents=True)
        path.write_bytes(fixture.data)
    shared = [run(tmp_path, "shared", capsys), *contents(tmp_path / "shared")]
    monkeypatch.setattr(parallel, "_cores", lambda: 1)
    alone = [run(tmp_path, "alone", capsys), *contents(tmp_path / "alone")]
    assert shared == alone
    assert len(alone) == 5
    (tmp_path / "in/2/output_code.py").write_bytes(get(fixtures[0]).data + b"def f(:\n")
    with pytest.raises(RewriterError) as refused:
        rewriter.open(tmp_path / "in/2").launches  # noqa: B018
    for cores in (1, 3):
        monkeypatch.setattr(parallel, "_cores", lambda cores=cores: cores)
        assert cli.main(["instrument", str(tmp_path / "in"), "-o", str(tmp_path / "no")]) == 2
        assert refused.value.message in capsys.readouterr().err


def run(folder: Path, output: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["list", str(folder / "in")]) == 0
    assert cli.main(["instrument", str(folder / "in"), "-o", str(folder / output)]) == 0
    printed = capsys.readouterr()
    return (printed.out + printed.err).replace(output, "")


def contents(folder: Path) -> list[tuple[str, bytes]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in files]
