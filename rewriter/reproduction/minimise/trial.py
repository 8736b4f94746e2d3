"""A process that runs one launch on values that are given to it, and may die of them."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rewriter.core import json_text
from rewriter.core.types import Json
from rewriter.reproduction.under.host import launches

if TYPE_CHECKING:
    import torch

_START = 600.0  # torch is imported, and the kernel compiled


@dataclass(frozen=True)
class Ran:
    """How a trial ended. `crash` names the signal; `error` is what torch refused, or that it took
    too long."""

    results: Mapping[str, torch.Tensor]
    crash: str = ""
    error: str = ""


class TrialProcess:
    """Runs the launch of a script; started again where it died."""

    def __init__(
        self, script: Path, folder: Path, mode: Literal["trials", "handed-trials"]
    ) -> None:
        self._command = [sys.executable, str(launches.__file__), mode, str(script), str(folder)]
        self._folder = folder
        self._mode = mode
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def base(self) -> dict[str, torch.Tensor]:
        """The arguments as they were recorded."""
        import torch

        self._started()
        loaded: dict[str, torch.Tensor] = torch.load(self._folder / "base.pt", weights_only=True)
        return loaded

    def run(
        self, given: Mapping[str, torch.Tensor], sizes: Mapping[str, int], timeout: float
    ) -> Ran:
        """Run the launch once. Nothing of an earlier run remains in the tensors."""
        import torch

        process = self._started()
        assert process.stdin is not None
        torch.save(dict(given), self._folder / "given.pt")
        wanted = {"given": str(self._folder / "given.pt"), "sizes": dict(sizes)}
        try:
            process.stdin.write(json_text.encode(wanted) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        answer = self._answer(timeout)
        if answer is None:
            return self._died()
        if not answer["ok"]:
            return Ran({}, error=answer["error"])
        if self._mode == "handed-trials":
            return Ran({})
        return Ran(torch.load(self._folder / "results.pt", weights_only=True))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._answer(_START)
        return self._process

    def _answer(self, timeout: float) -> Json | None:
        """The next line of the process; `None` where it ended, or took too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline() if ready else ""
        return json_text.parse_object(line.encode()) if line.strip() else None

    def _died(self) -> Ran:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._end()
            return Ran({}, error="it took too long")
        self._end()
        if code < 0:
            return Ran({}, crash=signal.Signals(-code).name)
        return Ran({}, error=f"the process ended with {code}")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
