"""Asks the command line about an artifact, as its user would, and reads which launches it names."""

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
    """What was concluded about an artifact: the launches that it named, the first one first, what
    kind of finding the first one is, and launches that it could say nothing of, with the reason.

    `ended` says how a run ended before its end, `broken` what a compiler said that refused the
    artifact, `failed` why there is no answer.
    """

    named: tuple[int, ...] = ()
    kind: str = ""
    verdict: str = ""
    suspects: dict[str, str] = field(default_factory=dict)
    command: str = ""
    seconds: float = 0.0
    runs: int = 0
    dump: str = ""
    ended: str = ""
    broken: str = ""
    failed: str = ""

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
    """Where this process was told to look for packages, first what comes first."""
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


class HasEnvironment(Protocol):
    """Something that a command is run about."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the process."""
        ...


class Judge:
    """Runs commands of `rewriter`, each in a process of its own.

    `python` is a Python that takes `-c`: one with torch imported already makes it quicker.
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
        """`rewriter diagnose`, which leaves its dumps in `folder`."""
        started = time.monotonic()
        command = ["diagnose", str(path), *program.options, "-d", str(folder / "dump")]
        ended = self.run(program, [*command, "--json"], folder)
        document = ended.document or {}
        findings = document.get("findings", [])
        named = [x["launch"] for x in findings if x["launch"] is not None]
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
        """The launches of a dump that can be checked without a reference, and which results."""
        ended = self.run(program, ["verify", dump, *program.imports, "--json"], folder)
        rows = (ended.document or {}).get("launches", ())
        return {
            x["launch"]: {one["arg"] for one in x["results"]}
            for x in rows
            if x["outcome"] != "unchecked"
        }


def warm_python() -> tuple[str, Any]:
    """A Python that forks from one with torch imported, and what closes it; else this Python."""
    try:
        import warm
    except ImportError:
        return sys.executable, None
    # A directory of files is not read at the import of torch.
    warm._NOT_READ += ("TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH")
    server = warm.Warm(Path(tempfile.mkdtemp(prefix="warm-")))
    return server.executable, server
