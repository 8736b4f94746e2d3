"""Runs a reproduction under the tool that was asked for."""

from __future__ import annotations

from pathlib import Path

from rewriter.reproduction.reproduce import Reproduction
from rewriter.reproduction.under import asan, gpu_tools, interpret
from rewriter.reproduction.under.refusal import not_for
from rewriter.reproduction.under.types import Tool, UnderResult


def run_under(made: Reproduction, tool: Tool, *, timeout: float) -> UnderResult:
    """What a tool says of the launch. Raises `RewriterError` where the tool is not there, or has
    nothing to say of such a launch; the script stays."""
    directory = Path(made.directory).absolute()
    arguments = made.variables
    kind = made.recorded.launch.kind
    if (tool == "asan") != (kind == "cpp") and tool != "compute-sanitizer":
        raise not_for(tool, f"it has nothing to watch in this launch, which is of kind {kind}")
    match tool:
        case "asan":
            return asan.run(directory, arguments, timeout=timeout)
        case "interpret":
            return interpret.run(directory, arguments, timeout=timeout)
    return gpu_tools.run(tool, directory, arguments, timeout=timeout)
