"""Starts the process that runs one wrapper: it imports torch, loads the wrapper and calls it once.

The process runs `rewriter/runtime/host/wrapper.py`, which describes the specification and the
report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rewriter.core import json_text
from rewriter.core.exit_status import ExitStatus
from rewriter.core.types import Json
from rewriter.execution.program import run_killable
from rewriter.execution.standard_error import StandardError, failed_check
from rewriter.instrumentation.types import Selection

_TAIL = 4096  # bytes of a file of events that hold its last row


@dataclass(frozen=True)
class HostRun:
    """How the process ended, its seconds, and its report, which is empty if it wrote none."""

    ended: ExitStatus
    seconds: float
    report: Json


# Where the output of the wrapper goes: `quiet` sends its standard output to standard error, `muted`
# drops both.
HostOutput = Literal["shown", "quiet", "muted"]


@dataclass(frozen=True, kw_only=True)
class HostRequest:
    """What is the same for every run: its probes, the file of its inputs, where it dumps to.

    `environment` is added to that of the process. `progress` is called with the number of launches
    begun, as the dump shows it, `report` with messages about the steps.
    """

    selection: Selection | None = None
    args: Path | None = None
    imports: tuple[str, ...] = ()
    dump: Path | None = None
    seed: int = 0
    overwrite: bool = False
    timeout: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = "rewriter.run"
    output: HostOutput = "shown"
    progress: Callable[[int], None] | None = None
    report: Callable[[str], None] = lambda text: None


def run_host(
    request: HostRequest,
    specification: Json,
    scratch: Path,
    dump: Path | None,
    added: Mapping[str, str],
) -> HostRun:
    """Run a specification. Specification and report are files in `scratch`. `added` is added to the
    environment, too."""
    timeout, output, progress = request.timeout, request.output, request.progress
    report = scratch / "report.json"
    file = scratch / "spec.json"
    file.write_text(json_text.encode(specification | {"report": str(report)}), encoding="utf-8")
    # The child must import this package, whatever is in the working directory.
    home = str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path[0] = {home!r}; "
        "from rewriter.runtime.host.wrapper import script; script()"
    )
    asked = {**request.environment, "REWRITER_COMMAND": request.command}
    environment = {**os.environ, **asked, **added}
    if dump is None:
        environment.pop("REWRITER_DUMP", None)
    else:
        environment["REWRITER_DUMP"] = str(dump)

    def on_poll() -> None:
        if progress and dump:
            progress(_launches_begun(dump))

    started = time.perf_counter()
    heard = StandardError(shown=True) if output == "quiet" else None
    dropped = subprocess.DEVNULL if output == "muted" else None
    with heard.reading() if heard else nullcontext():
        ended = run_killable(
            [sys.executable, "-c", program, str(file)],
            environment,
            timeout=timeout,
            stdout=sys.stderr if heard else dropped,
            stderr=heard.descriptor if heard else dropped,
            on_poll=on_poll if progress and dump else None,
        )
    seconds = time.perf_counter() - started
    on_poll()  # a quick call ends before the first time
    content = json_text.parse_object(report.read_bytes()) if report.exists() else {}
    if not ended.message and (message := content.get("message", "")):
        ended = replace(ended, message=message, check=failed_check(message))
    ended = heard.explained(ended) if heard else ended
    return HostRun(ended, seconds, content)


def _launches_begun(dump: Path) -> int:
    """The number of launches that the wrapper has begun, by the last row of its only call."""
    for path in dump.glob("rank*/run*/events.jsonl"):
        with suppress(OSError, ValueError, TypeError, IndexError), path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            whole = file.read().split(b"\n")[:-1]
            return int(json_text.parse_object(whole[-1]).get("launch", -1)) + 1
    return 0
