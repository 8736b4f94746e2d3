"""Runs a tool, for so long and no longer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rewriter.core.errors import FAILED, RewriterError
from rewriter.reproduction.under.refusal import no_tool


def execute(
    tool: str,
    command: Sequence[str],
    folder: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises `RewriterError` where it is not there, or takes too long."""
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise no_tool(tool, f"there is no {command[0]}", "Install a C++ compiler, g++.") from error
    except subprocess.TimeoutExpired as error:
        raise RewriterError(
            "tool-timed-out",
            f"--under {tool}: {Path(command[0]).name} did not end within {timeout:.0f} seconds",
            hint="Pass --timeout with more seconds.",
            code=FAILED,
        ) from error


def last_line(text: str) -> str:
    """The last line of what a program printed, which is what it died of."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
