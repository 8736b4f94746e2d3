"""Runs `rewriter diagnose` on an artifact, as a user would, and reads which launches it names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.faults.programs import ROOT, Program

_COMMAND = """
import sys
sys.executable = sys.argv.pop(1)
from rewriter.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Answer:
    """The answer of `rewriter diagnose` about an artifact."""

    named: tuple[int, ...] = ()  # the launches that findings name, in order
    kind: str = ""  # of the first finding
    verdict: str = ""
    suspects: dict[str, str] = field(default_factory=dict)  # launches not decided: the reasons
    command: str = ""
    seconds: float = 0.0
    runs: int = 0
    dump: str = ""  # the last one with saved values
    ended: str = ""  # how a run ended early
    broken: str = ""  # the message of a compiler that rejected the artifact
    failed: str = ""  # why there is no answer

    @property
    def says_something(self) -> bool:
        return bool(self.kind)

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ended:
    code: int
    document: dict[str, Any] | None
    errors: str


def searched() -> list[str]:
    """The directories in `PYTHONPATH`, in order."""
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


class HasEnvironment(Protocol):
    """A program whose commands need certain environment variables."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command about this program."""
        ...


class Judge:
    """Runs commands of `rewriter`, each in a separate process.

    `python` is an interpreter that takes `-c`; `warm_python` gives one that starts faster.
    """

    def __init__(self, python: str, timeout: float) -> None:
        self._python = python
        self._timeout = timeout

    def run(self, program: HasEnvironment, command: Sequence[str], folder: Path) -> Ended:
        process = subprocess.Popen(
            [self._python, "-c", _COMMAND, self._python, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**program.environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *searched()])},
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
        """Run `rewriter diagnose` on an artifact at `path`; its dumps go into `folder`."""
        started = time.monotonic()
        command = ["diagnose", str(path), *program.options, "-d", str(folder / "dump")]
        ended = self.run(program, [*command, "--json"], folder)
        document = ended.document or {}
        findings = document.get("findings", [])
        # A finding of a wrong launch may name others, of which it may be.
        named = [
            y
            for x in findings
            if x["launch"] is not None
            for y in (x["launch"], *(x["others"] if x["kind"] == "wrong" else ()))
        ]
        runs = document.get("runs", ())
        recorded = [x["dump"] for x in runs if "save" in x["what"]]
        return Answer(
            named=tuple(dict.fromkeys(named)),
            kind=findings[0]["kind"] if findings else "",
            verdict=document.get("headline") or ended.errors[-500:],
            suspects={str(x["launch"]): x["reason"] for x in document.get("suspects", ())},
            command=" ".join(["rewriter", *command]),
            seconds=time.monotonic() - started,
            runs=len(runs),
            dump=recorded[-1] if recorded else "",
            ended=next((x["outcome"] for x in runs if x["outcome"] != "ran to its end"), ""),
            broken=ended.errors[-1500:] if "CppCompileError" in ended.errors else "",
            failed="" if document else ended.errors[-1500:],
        )

    def checked(self, program: Program, dump: str, folder: Path) -> dict[int, set[str]]:
        """Run `rewriter verify` on a dump. Returns the launches that it checks, with the names of
        the checked results."""
        ended = self.run(program, ["verify", dump, *program.imports, "--json"], folder)
        rows = (ended.document or {}).get("launches", ())
        return {
            x["launch"]: {one["arg"] for one in x["results"]}
            for x in rows
            if x["outcome"] != "unchecked"
        }


def warm_python() -> tuple[str, Any]:
    """An interpreter that forks from a process with torch imported, and an object to close it.

    Returns the plain interpreter and None if the module `warm` cannot be imported.
    """
    try:
        import warm
    except ImportError:
        return sys.executable, None
    # These variables have no effect on the import of torch, so they may differ.
    warm._NOT_READ += ("TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH")
    server = warm.Warm(Path(tempfile.mkdtemp(prefix="warm-")))
    return server.executable, server
