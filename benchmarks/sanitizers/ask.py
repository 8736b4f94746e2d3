"""Runs `rewriter sanitize` on an artifact, and `compute-sanitizer` for comparison."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.judge import Judge
from benchmarks.faults.programs import ROOT, Program
from benchmarks.sanitizers.artifacts import Artifact


@dataclass(frozen=True)
class Answer:
    """The answer of `rewriter sanitize`."""

    named: tuple[int, ...] = ()  # the launches of all findings, in order
    kind: str = ""  # of the first finding
    verdict: str = ""
    unchanged: bool = False  # whether it says that the outputs are unchanged
    runs: int = 0
    seconds: float = 0.0
    failed: str = ""  # why there is no answer


@dataclass(frozen=True)
class Beside:
    """The number of errors that compute-sanitizer counts; None if it did not run or finish."""

    errors: int | None
    seconds: float


def options_of(program: Program | Artifact) -> list[str]:
    """The options of a command about a program: inputs, and custom operators."""
    if isinstance(program, Artifact):
        return program.options
    return ["--args", program.args, *program.imports]


def sanitize(judge: Judge, program: Program | Artifact, path: Path, folder: Path) -> Answer:
    started = time.monotonic()
    dump = ["-d", str(folder / "dump")]
    command = ["sanitize", str(path), *options_of(program), *dump, "--json"]
    ended = judge.run(program, command, folder)
    document = ended.document or {}
    findings = document.get("findings", [])
    return Answer(
        tuple(x["launch"] for x in findings if x["launch"] is not None),
        findings[0]["kind"] if findings else "",
        document.get("headline") or ended.errors[-400:],
        any(note.startswith("outputs unchanged") for note in document.get("notes", ())),
        len(document.get("runs", ())),
        time.monotonic() - started,
        "" if document else ended.errors[-1500:] or f"exit code {ended.code}",
    )


def compute_sanitizer(program: Program | Artifact, path: Path, folder: Path) -> Beside:
    """Run `memcheck` on one call of the wrapper without probes.

    Torch's cache of GPU memory is off: inside a cached block memcheck sees no end of a buffer.
    """
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return Beside(None, 0.0)
    started = time.monotonic()
    words = ["run", str(path), *options_of(program)]
    script = f"from rewriter.cli import main; main({words!r})"
    command = [tool, "--target-processes", "all", sys.executable, "-c", script]
    environment = {
        **program.environment,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    }
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Beside(None, time.monotonic() - started)
    counts = re.findall(r"ERROR SUMMARY: (\d+) error", ended.stdout + ended.stderr)
    errors = sum(map(int, counts)) if counts else None
    return Beside(errors, time.monotonic() - started)
