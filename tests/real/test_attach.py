"""`rewriter attach` and `rewriter live`: probes in a program that runs, asked for from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from rewriter import cli
from rewriter.dump.reading import open_dump
from rewriter.hook import STARTUP
from rewriter.loaded import client, listener
from rewriter.loaded.find import loaded_entries
from test_probing import Model

ROOT = Path(__file__).parents[2]
HERE = str(os.getpid())
PRINT = {"selection": {"probes": ["print"]}, "directory": "dump"}


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where dumps go."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def listening() -> Iterator[None]:
    """This process listens; afterwards it does not."""
    listener.start()
    listener.start()
    yield
    listener.stop()
    assert not is_heard(os.getpid())


def is_heard(pid: int) -> bool:
    """Whether a process listens."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(listener.address(pid)) == 0


@pytest.fixture
def codes(model: Model) -> dict[FunctionType, CodeType]:
    return {entry: entry.__code__ for entry in loaded_entries()}


def are_back(codes: dict[FunctionType, CodeType]) -> bool:
    return all(function.__code__ is code for function, code in codes.items())


@contextmanager
def calling(model: Model) -> Iterator[list[Any]]:
    """A program that calls its model all the time; what was wrong."""
    stop, wrong = threading.Event(), []

    def serve() -> None:
        while not stop.is_set():
            try:
                model.check(model.step())
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join()


def test_the_first_calls(
    model: Model, listening: None, codes: dict[FunctionType, CodeType],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with calling(model) as wrong:
        assert cli.main(["attach", HERE, "--first", "3", "-d", "dump"]) == 0
        assert are_back(codes)
    assert wrong == []
    calls: dict[str, list[object]] = {}
    for run in open_dump("dump").runs:
        calls.setdefault(run.artifact, []).append(run.facts.call)
    assert list(calls.values()) == [[0, 1, 2], [0, 1, 2]]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "24 launches recorded\ndump: dump; see it with" in captured.err


def test_some_seconds(model: Model, listening: None, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["attach", HERE, "--kernels", "*gelu_0", "--seconds", "0.2", "-d", "dump", "--echo"]
    with calling(model) as wrong:
        assert cli.main(words) == 0
    assert wrong == []
    assert {step.kernel for run in open_dump("dump").runs for step in run.steps} == {
        "cpp_fused_gelu_0"
    }
    assert "#1 after  cpp_fused_gelu_0" in capfd.readouterr().out


def test_nothing_was_called(
    model: Model, listening: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["attach", HERE, "--seconds", "0.1", "-d", "dump"]) == 0
    assert "nothing was recorded" in capsys.readouterr().err
    assert not (tmp_path / "dump").exists()


def test_a_client_that_goes_away(
    model: Model, listening: None, codes: dict[FunctionType, CodeType]
) -> None:
    asking = ask(PRINT)
    answer = json.loads(asking.recv(4096))
    assert answer == {"state": "probing", "pid": os.getpid()}
    assert not are_back(codes)
    asking.close()
    end = time.monotonic() + 10
    while not are_back(codes) and time.monotonic() < end:
        time.sleep(0.01)
    assert are_back(codes)


def test_a_client_that_has_enough(model: Model, listening: None) -> None:
    with ask(PRINT) as asking, asking.makefile() as answers:
        answers.readline()
        model.step()
        asking.shutdown(socket.SHUT_WR)
        answer = json.loads(answers.readline())
    assert answer["state"] == "done"
    assert sorted(answer["calls"].values()) == [1, 1]


def ask(request: object) -> socket.socket:
    asking = socket.socket(socket.AF_UNIX)
    asking.settimeout(30)
    asking.connect(listener.address(os.getpid()))
    asking.sendall(json.dumps(request).encode() + b"\n")
    return asking


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"directory": "dump"}, "selection"),
        ({"selection": {"probes": ["prnt"]}, "directory": "dump"}, "unknown probe"),
        ({**PRINT, "version": "0.0.1"}, "it has version"),
        ({**PRINT, "code": "import os"}, "unknown field"),
        ([], "Expected `object`"),
    ],
)
def test_requests_that_are_refused(
    model: Model, listening: None, request_: object, why: str
) -> None:
    with ask(request_) as asking:
        answer = json.loads(asking.recv(4096))
    assert answer["state"] == "refused"
    assert why in answer["message"]


def test_both_sides_ask_whose_the_other_one_is(
    listening: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(listener, "peer", lambda connection: (os.getpid(), 12345))
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(30)
            asking.connect(listener.address(os.getpid()))
            assert asking.recv(1) == b""
    # Another process listens at the name, of this user and of another one.
    for process, user in ((1, os.getuid()), (os.getpid(), 12345)):
        with monkeypatch.context() as patch:
            patch.setattr(client, "peer", lambda connection, it=(process, user): it)
            assert cli.main(["attach", HERE, "-d", "dump"]) == 2
        assert "error[not-your-process]" in capsys.readouterr().err


def test_a_fork_does_not_listen(listening: None) -> None:
    code = (
        "import os\n"
        "from rewriter.loaded import listener\n"
        "listener.start()\n"
        "if (pid := os.fork()) == 0:\n"
        "    print(os.getppid(), os.getpid(), flush=True)\n"
        "    input()\n"
        "    os._exit(0)\n"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        parent, child = map(int, process.stdout.readline().split())
        process.wait(30)
        assert not is_heard(parent)
        assert not is_heard(child)
        process.stdin.write("\n")


def test_processes_that_cannot_be_attached_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    assert cli.main(["attach", "train.py"]) == 2
    assert "error[no-process]: 'train.py'" in capsys.readouterr().err
    assert cli.main(["attach", "99999999"]) == 2
    assert "error[no-process]" in capsys.readouterr().err
    assert cli.main(["attach", HERE]) == 2
    assert "error[no-listener]" in capsys.readouterr().err
    # A process that ended without a word, and one that ends while it is probed.
    server = socket.socket(socket.AF_UNIX)
    server.bind(listener.address(os.getpid()))
    assert cli.main(["attach", HERE]) == 2
    assert "error[no-listener]" in capsys.readouterr().err
    server.listen()

    def hang_up() -> None:
        connection, _ = server.accept()
        connection.recv(1)
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    assert cli.main(["attach", HERE]) == 3
    thread.join()
    server.close()
    assert "error[process-ended]" in capsys.readouterr().err
    assert cli.main(["attach", HERE, "--stop"]) == 2
    assert "error[idle-options]" in capsys.readouterr().err


def test_a_program_that_python_asks_to_listen(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sys.remote_exec` of Python 3.14 does: the script runs in the program."""

    def remote_exec(pid: int, script: str) -> None:
        assert pid == os.getpid()
        source = Path(script).read_text()
        threading.Thread(target=lambda: exec(source, {})).start()

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    paths = list(sys.path)
    try:
        with calling(model) as wrong:
            assert cli.main(["attach", HERE, "--first", "1", "-d", "dump"]) == 0
    finally:
        listener.stop()
    assert wrong == []
    assert sys.path == paths
    assert len(open_dump("dump").runs) == 2


def test_live_starts_a_program_that_listens(tmp_path: Path) -> None:
    """Once it imports what compiles with Inductor, here one that only has the name."""
    package = tmp_path / "site" / "torch" / "_inductor"
    package.mkdir(parents=True)
    for name in ("../__init__", "__init__", "codecache"):
        (package / f"{name}.py").touch()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('mine')\n")
    code = (
        "import os, sys\n"
        "print('rewriter.live' in sys.modules)\n"
        "import torch._inductor.codecache\n"
        "print('rewriter.live' in sys.modules, os.getpid())\n"
        "import socket\n"
        "from rewriter.loaded import listener\n"
        "print(socket.socket(socket.AF_UNIX).connect_ex(listener.address(os.getpid())))\n"
        "print(any('startup' in one for one in sys.path))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, "-m", "rewriter", "live", "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    output, errors = process.communicate(timeout=60)
    lines = output.splitlines()
    assert lines[-4:] == ["False", f"True {process.pid}", "0", "False"]
    assert lines[0] == "mine"
    assert f"rewriter attach {process.pid}" in errors
    assert STARTUP.is_dir()


def test_live_needs_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["live", "train.py"]) == 2
    assert "error[no-program]" in capsys.readouterr().err
    assert cli.main(["live", "--", "no-such-program"]) == 2
    assert "error[no-program]" in capsys.readouterr().err
