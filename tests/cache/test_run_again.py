"""How often a program runs that somebody asked to end: never once more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from artifacts import get
from caches import WRAPPERS
from rewriter import cli

FIXTURE, NAME = next(iter(WRAPPERS.items()))
# A new wrapper in the cache of its own, as a program that compiles leaves it.
PROGRAM = """
import os, pathlib, shutil, signal, sys
with open("starts", "a") as file:
    file.write("x")
wrapper = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / sys.argv[1]
if not wrapper.exists():
    wrapper.parent.mkdir(exist_ok=True, parents=True)
    shutil.copy("wrapper.py", wrapper)
end = int(sys.argv[2])
if end < 0:
    if -end == signal.SIGHUP:  # ignored by what `nohup` starts, and so by its children
        signal.signal(-end, signal.SIG_DFL)
    os.kill(os.getpid(), -end)
sys.exit(end)
"""


@pytest.mark.parametrize(
    ("end", "is_cold", "starts"),
    [
        pytest.param(-15, True, 1, id="SIGTERM before it had probes"),
        pytest.param(143, True, 1, id="a shell whose command SIGTERM ended"),
        pytest.param(-1, False, 1, id="SIGHUP with probes, and a wrapper that is new"),
        pytest.param(-9, True, 2, id="SIGKILL: out of memory, for one"),
        pytest.param(1, False, 2, id="an exception, and a wrapper that is new"),
    ],
)
def test_who_is_asked_to_end_is_not_started_again(
    end: int,
    is_cold: bool,
    starts: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    wrapper = get(FIXTURE).data
    Path("wrapper.py").write_bytes(wrapper)
    Path("program.py").write_text(PROGRAM)
    Path("cache").mkdir()
    if not is_cold:
        Path("cache", NAME).parent.mkdir()
        Path("cache", NAME).write_bytes(wrapper + b"# another one\n")
    new = NAME.replace("0.py", "1.py")
    words = ["run", "--dir", "cache", "--", sys.executable, "-S", "program.py", new, str(end)]
    assert cli.main(words) == 1
    assert Path("starts").read_text() == "x" * starts
    assert Path("cache", new).read_bytes() == wrapper
    assert ("is not started again" in capfd.readouterr().err) is (starts == 1)
