"""Asks the command line about an artifact, as its user would, and reads which launches it names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults.programs import ROOT, Program

_COMMAND = """
import sys
sys.executable = sys.argv.pop(1)
from rewriter.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Answer:
    """What was said of an artifact: launches that were named, the first one first.

    `checked` are the launches that something was said of, `reason` why not of others.
    """

    named: tuple[int, ...]
    verdict: str
    commands: tuple[str, ...]
    seconds: float
    crashed: bool = False
    broken: str = ""
    checked: tuple[int, ...] = ()
    unchecked: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ended:
    code: int
    document: dict[str, Any] | None
    errors: str


class Judge:
    """Runs commands of `rewriter`, each in a process of its own.

    `python` is a Python that takes `-c`: one with torch imported already makes it quicker.
    """

    def __init__(self, python: str, timeout: float) -> None:
        self._python = python
        self._timeout = timeout

    def run(self, program: Program, command: Sequence[str], folder: Path) -> Ended:
        process = subprocess.Popen(
            [self._python, "-c", _COMMAND, self._python, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**program.environment, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Ended(124, None, f"it took more than {self._timeout:g} s")
        document = None
        for line in reversed(out.decode(errors="replace").strip().splitlines()):
            if line.startswith("{"):
                document = json.loads(line)
                break
        return Ended(process.returncode, document, errors.decode(errors="replace"))

    def ask(self, program: Program, path: Path, folder: Path) -> Answer:
        """`rewriter verify`, which leaves its dump in `folder`; where it did not run to its end,
        `rewriter triage`."""
        started = time.monotonic()
        command = [
            "verify",
            str(path),
            "--args",
            program.args,
            "-d",
            str(folder / "dump"),
            "--json",
        ]
        ended = self.run(program, command, folder)
        commands = [" ".join(["rewriter", *command])]
        document = ended.document or {}
        named = [x["launch"] for x in document.get("launches", ()) if x["outcome"] == "differs"]
        verdict = document.get("verdict") or ""
        crashed = ended.document is None or "did not run to its end" in ended.errors
        broken = ended.errors[-1500:] if "CppCompileError" in ended.errors else ""
        if crashed and not broken:
            command = ["triage", str(path), "--args", program.args, "--json"]
            triage = self.run(program, command, folder)
            commands.append(" ".join(["rewriter", *command]))
            found = (triage.document or {}).get("verdict") or {}
            if found.get("launch") is not None:
                named.append(found["launch"])
            said = found.get("headline") or triage.errors[-500:]
            verdict = f"{verdict}; triage: {said}" if verdict else f"triage: {said}"
        rows = document.get("launches", ())
        return Answer(
            tuple(dict.fromkeys(named)),
            verdict,
            tuple(commands),
            time.monotonic() - started,
            crashed,
            broken,
            tuple(x["launch"] for x in rows if x["outcome"] != "unchecked"),
            {str(x["launch"]): x["reason"] for x in rows if x["outcome"] == "unchecked"},
        )


def warm_python() -> tuple[str, Any]:
    """A Python that forks from one with torch imported, and what closes it; else this Python."""
    try:
        import warm
    except ImportError:
        return sys.executable, None
    # A directory of files is not read at the import of torch.
    warm._NOT_READ += ("TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH")
    server = warm.Warm()
    return server.executable, server
