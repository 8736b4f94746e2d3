"""Compilations that are kept, and the Python that has torch imported: what other tests rest on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from compilations import Compilations
from warm import SERVERS, Warm

PYTHON = sys.executable


def test_a_compilation_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> str:
        made.append(folder)
        return str(folder)

    names = {Compilations(tmp_path).value_with_files(make, "cpp", "mlp") for _ in range(3)}
    assert names == {str(made[0])}
    assert len(made) == 1


def test_what_is_half_made_does_not_count(tmp_path: Path) -> None:
    def stopped(folder: Path) -> str:
        (folder / "rest").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Compilations(tmp_path).value_with_files(stopped, "cpp", "mlp")
    found = Compilations(tmp_path).value_with_files(
        lambda folder: [path.name for path in folder.iterdir()], "cpp", "mlp"
    )
    assert found == []


def test_what_names_a_header_that_is_gone_is_made_again(tmp_path: Path) -> None:
    header = tmp_path / "header.h"
    made = []

    def make(folder: Path) -> int:
        header.touch()
        (folder / "a.cpp").write_text(f"// g++ -include {header} -c a.cpp\n")
        made.append(folder)
        return len(made)

    kept = tmp_path / "kept"
    kept.mkdir()
    assert [Compilations(kept).value_with_files(make, "aoti") for _ in range(2)] == [1, 1]
    header.unlink()
    assert Compilations(kept).value_with_files(make, "aoti") == 2


def test_compilations_of_other_sources_are_removed(tmp_path: Path) -> None:
    (tmp_path / "0123").mkdir()
    (tmp_path / "0123" / "value").touch()
    assert Compilations(tmp_path).value(lambda: 1, "python", "mlp") == 1
    assert not (tmp_path / "0123").exists()


SHOW = "import os, sys, torch; print(sys.argv, os.getcwd(), os.environ['X'], sys.stdin.read())"


def test_a_program_that_starts_warm_is_like_any_other(warm_python: None, tmp_path: Path) -> None:
    def run(python: str, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [python, *words],
            input="given",
            env={**os.environ, "X": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr.splitlines()[-1] if done.stderr else ""

    script = "import sys, __main__; print(__name__, __file__, __main__.x, sys.path, sys.argv)"
    (tmp_path / "show.py").write_text(f"x = 1; {script}")
    (tmp_path / "link.py").symlink_to("show.py")
    for words in (
        ["show.py", "a", "--b"],
        [str(tmp_path / "link.py")],
        ["none.py"],
        ["-c", SHOW, "a", "--b"],
        ["-c", "import sys; sys.exit(3)"],
        ["-c", "import sys; sys.exit('said')"],
        ["-c", "raise ValueError('x')"],
        ["-c", "import os; os.abort()"],
        ["-c", "import atexit; atexit.register(print, 'end')"],
        ["-m", "rewriter", "--version"],
        ["-m", "rewriter", "list", "show.py"],
        ["-m", "rewriter", "nothing"],
    ):
        assert run(sys.executable, *words) == run(PYTHON, *words), words


def test_what_torch_reads_when_imported_is_read_anew(warm_python: None) -> None:
    code = "import sys; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_what_is_on_the_path_of_a_program_that_starts_warm(
    warm_python: None, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.mine = __file__")
    code = "import sys; print(sys.path, sys.mine, 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:nothing"}
    warm, cold = (
        subprocess.run(
            [python, "-c", code],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for python in (sys.executable, PYTHON)
    )
    assert warm == [*cold[:-1], "True"]
    assert cold[-1] == "False"


def test_a_program_that_starts_warm_ends_with_who_asked(warm_python: None) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        ) as asked:
            assert asked.stdout is not None
            program = int(asked.stdout.readline())
            asked.send_signal(number)
            # The pipe is closed once nobody writes to it any more.
            assert asked.stdout.read() == ""
        assert asked.returncode == -number
        assert program != asked.pid


def test_servers_are_shared_and_end_with_who_needs_them_last(tmp_path: Path) -> None:
    code = "import os, torch; print(os.getppid())"
    with tempfile.TemporaryDirectory() as place:  # the path of a socket is short
        folder = Path(place) / "warm"
        there = set(SERVERS)
        first, second = Warm(folder), Warm(folder)
        assert first.executable == second.executable
        started = SERVERS.keys() - there
        assert len(started) == 2
        first.close()
        run = subprocess.run([second.executable, "-c", code], capture_output=True, text=True)
        assert run.stdout.strip() in started
        second.close()
        assert [SERVERS[number].wait(60) for number in started] == [0, 0]
        assert not folder.exists()


def test_what_a_parent_hands_on_is_open_in_a_program_that_starts_warm(warm_python: None) -> None:
    ends = os.pipe()
    code = f"import os, torch; os.write({ends[1]}, b'said'); print(os.listdir('/proc/self/fd'))"
    done = subprocess.run(
        [sys.executable, "-c", code], pass_fds=[ends[1]], capture_output=True, text=True
    )
    os.close(ends[1])
    with open(ends[0], "rb") as reader:
        assert reader.read() == b"said", done.stderr
    assert done.stdout.count("'") == 2 * 5, done.stdout  # with that of the directory
