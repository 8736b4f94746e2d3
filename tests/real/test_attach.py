"""`rewriter attach` and `rewriter live`: probes in a program that runs, asked for from outside."""

from __future__ import annotations

import json
import os
import socket
import stat
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
from rewriter.loaded import listener, protocol
from rewriter.loaded.find import loaded_entries
from test_probing import Model

ROOT = Path(__file__).parents[2]
HERE = str(os.getpid())


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of sockets."""
    # The path of a socket has at most 107 bytes.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(protocol, "directory", lambda: Path("sockets"))
    return tmp_path / "sockets"


@pytest.fixture
def listening(place: Path) -> Iterator[Path]:
    """This process listens; afterwards it does not, and nothing of it is left."""
    path = listener.start()
    assert listener.start() == path
    yield path
    listener.stop()
    assert not path.exists()


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
    model: Model, listening: Path, codes: dict[FunctionType, CodeType],
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


def test_some_seconds(model: Model, listening: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["attach", HERE, "--kernels", "*gelu_0", "--seconds", "0.2", "-d", "dump", "--echo"]
    with calling(model) as wrong:
        assert cli.main(words) == 0
    assert wrong == []
    assert {step.kernel for run in open_dump("dump").runs for step in run.steps} == {
        "cpp_fused_gelu_0"
    }
    assert "#1 after  cpp_fused_gelu_0" in capfd.readouterr().out


def test_nothing_was_called(
    model: Model, listening: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["attach", HERE, "--seconds", "0.1", "-d", "dump"]) == 0
    assert "nothing was recorded" in capsys.readouterr().err
    assert not (tmp_path / "dump").exists()


def test_a_client_that_goes_away(
    model: Model, listening: Path, codes: dict[FunctionType, CodeType]
) -> None:
    client = ask({"probes": ["print"], "directory": "dump"})
    answer = json.loads(client.recv(4096))
    assert answer == {"state": "probing", "pid": os.getpid()}
    assert not are_back(codes)
    client.close()
    end = time.monotonic() + 10
    while not are_back(codes) and time.monotonic() < end:
        time.sleep(0.01)
    assert are_back(codes)


def test_a_client_that_has_enough(model: Model, listening: Path) -> None:
    with ask({"probes": ["print"], "directory": "dump"}) as client, client.makefile() as answers:
        answers.readline()
        model.step()
        client.shutdown(socket.SHUT_WR)
        answer = json.loads(answers.readline())
    assert answer["state"] == "done"
    assert sorted(answer["calls"].values()) == [1, 1]


def ask(request: object) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(30)
    client.connect(str(protocol.socket_path(os.getpid())))
    client.sendall(json.dumps(request).encode() + b"\n")
    return client


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"directory": "dump"}, "probes"),
        ({"probes": ["prnt"], "directory": "dump"}, "unknown probe"),
        ({"probes": ["print"], "directory": "dump", "version": 2}, "version 1"),
        ({"probes": ["print"], "directory": "dump", "code": "import os"}, "unknown field"),
        ([], "Expected `object`"),
    ],
)
def test_requests_that_are_refused(
    model: Model, listening: Path, request_: object, why: str
) -> None:
    with ask(request_) as client:
        answer = json.loads(client.recv(4096))
    assert answer["state"] == "refused"
    assert why in answer["message"]


def test_only_the_user_gets_to_the_socket(
    listening: Path, place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert stat.S_IMODE(listening.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    one, other = socket.socketpair()
    with one, other:
        assert listener._is_of_the_user(one)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: 12345)
            assert not listener._is_of_the_user(one)
    place.chmod(0o755)
    assert cli.main(["attach", HERE, "-d", "dump"]) == 2
    assert "error[not-your-process]" in capsys.readouterr().err
    with pytest.raises(protocol.NotOursError):
        listener.Listener()
    place.chmod(0o700)


def test_processes_that_cannot_be_attached_to(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    assert cli.main(["attach", "train.py"]) == 2
    assert "error[no-process]: 'train.py'" in capsys.readouterr().err
    assert cli.main(["attach", "99999999"]) == 2
    assert "error[no-process]" in capsys.readouterr().err
    assert cli.main(["attach", HERE]) == 2
    assert "error[no-listener]" in capsys.readouterr().err
    # A process that ended without a word, and one that ends while it is probed.
    protocol.make_directory()
    path = protocol.socket_path(os.getpid())
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
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
    model: Model, place: Path, monkeypatch: pytest.MonkeyPatch
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
        "from rewriter.loaded import protocol\n"
        "print(protocol.socket_path(os.getpid()).exists())\n"
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
    assert lines[-4:] == ["False", f"True {process.pid}", "True", "False"]
    assert lines[0] == "mine"
    assert f"rewriter attach {process.pid}" in errors
    assert STARTUP.is_dir()


def test_live_needs_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["live", "train.py"]) == 2
    assert "error[no-program]" in capsys.readouterr().err
    assert cli.main(["live", "--", "no-such-program"]) == 2
    assert "error[no-program]" in capsys.readouterr().err
