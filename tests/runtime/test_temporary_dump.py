"""Temporary dumps of `rewriter.probing`: who drops one does not wait, and none is left."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rewriter.execution.loaded.temporary import TemporaryDump

PROGRAM = """
import os
from rewriter.execution.loaded.temporary import TemporaryDump
held, dropped = TemporaryDump(), TemporaryDump()
for one in (held, dropped):
    (one.path / "rank0/run0").mkdir(parents=True)
    print(one.path)
del dropped, one
if not os.fork():
    del held
    raise SystemExit
os.wait()
assert (held.path / "rank0/run0").exists()  # the fork has not removed it
"""


def gone(path: Path) -> bool:
    until = time.monotonic() + 20
    while path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return not path.exists()


def test_who_drops_a_dump_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, remove = threading.Event(), shutil.rmtree

    def slowly(*words: Any, **more: Any) -> None:
        go_on.wait(20)
        remove(*words, **more)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    dump, other = TemporaryDump(), TemporaryDump()
    path = dump.path
    del dump
    assert path.exists()
    go_on.set()
    assert gone(path)
    assert other.path.exists()  # somebody has it
    other.remove()
    assert not other.path.exists()


def test_none_is_left_when_the_program_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.split()[:2]]
    assert len(paths) == 2
    assert not any(path.exists() for path in paths)
