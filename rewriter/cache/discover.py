"""Runs a program without probes, to learn which wrappers it uses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rewriter.cache import naming
from rewriter.cache.session import Tell
from rewriter.cache.usage import Usage, Watch
from rewriter.core.exit_status import ExitStatus
from rewriter.core.signals import Signals
from rewriter.execution import program
from rewriter.execution.standard_input import StandardInput


def discover(
    command: Sequence[str], added: Mapping[str, str], tell: Tell, *, quiet: bool = False
) -> tuple[ExitStatus, Usage]:
    """How a program ended, and what it used. `added` are variables for its environment; `quiet`
    sends its output to standard error. Raises `RewriterError` if it cannot be started."""
    program.require(command)
    with Signals() as signals, tempfile.TemporaryDirectory(prefix="rewriter-run-") as place:
        folder, traces = Path(place, "watch"), Path(place, "trace")
        folder.mkdir()
        traces.mkdir()
        watch = Watch(folder, traces)
        environment = {**os.environ, **added, **naming.environment(traces)}
        environment |= watch.environment(environment)
        ended = program.run(command, environment, signals, tell, StandardInput(), quiet=quiet)
        return ended, watch.usage()
