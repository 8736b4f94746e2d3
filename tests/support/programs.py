"""Starts programs and commands of the rewriter, and catches what they print."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rewriter.cli import main

Done = subprocess.CompletedProcess[str]


def run(
    *command: object,
    code: int | None = 0,
    cwd: Path | None = None,
    given: str | None = None,
    timeout: float | None = None,
    less: str = "",
    **added: object,
) -> Done:
    """What a program did that is given this text, and had to end with this code, unless that is
    None. Its environment is that of the tests with what is `added`, and without the variable
    `less`."""
    environment = {**os.environ, **{name: str(value) for name, value in added.items()}}
    environment.pop(less, None)
    done = subprocess.run(
        [*map(str, command)], env=environment, cwd=cwd, input=given, timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert code in (None, done.returncode), done.stdout[-3000:] + done.stderr[-5000:]
    return done


def rewriter(*words: object, **options: Any) -> Done:
    """A command of the rewriter in a process of its own, which `run` starts."""
    return run(sys.executable, "-m", "rewriter", *words, **options)


def document(*words: object, code: int = 0) -> dict[str, Any]:
    """What a command of the rewriter prints as JSON, in this process: nothing if it refuses."""
    command = [*map(str, words)]
    command.insert(command.index("--") if "--" in command else len(command), "--json")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(command) == code
    found: dict[str, Any] = json.loads(printed.getvalue() or "{}")
    return found
