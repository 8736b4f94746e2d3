"""Tools that need a CUDA device, or packages of their own: compute-sanitizer, triton-viz, FpSan."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from rewriter.reproduction.under.host import launches
from rewriter.reproduction.under.interpret import require_triton, run_triton
from rewriter.reproduction.under.tool import (
    Finding,
    Memory,
    Tool,
    UnderResult,
    again,
    execute,
    last_line,
    line_of,
    nearest,
    no_tool,
)

_TOOLKIT = Path("/usr/local/cuda/bin/compute-sanitizer")
_FAULT = re.compile(
    r"^=+ (?P<what>Invalid __\w+__ (?:read|write|atomic) of size (?P<size>\d+) bytes"
    r"|Race reported.*|Uninitialized __\w+__ memory read.*|Misaligned.*)$",
    re.MULTILINE,
)
# `at kernel+0x110 in /cache/xy.py:22`; earlier releases have `at 0x110 in /cache/xy.py:22:kernel`.
_LINE = re.compile(r"\bin (\S+?\.(?:py|cu|cpp|h|cuh)):(\d+)")
_AT = re.compile(r"Address (0x[0-9a-f]+) is")
_ARGUMENT = re.compile(r"^argument (\w+) (0x[0-9a-f]+) (\d+) (\d+)$", re.MULTILINE)
_WITHOUT_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_LAUNCH_BLOCKING": "1"}
_FPSAN = (
    "Under FpSan a kernel gives the same bits whatever the order of its additions: the launch ran "
    "with blocks of two sizes."
)


def run(
    tool: Tool, directory: Path, arguments: Mapping[str, str], *, timeout: float
) -> UnderResult:
    """Run a `repro.py` under one of these tools. Raises `RewriterError` where it is not there."""
    if tool == "compute-sanitizer":
        return _compute_sanitizer(directory, arguments, timeout)
    triton = require_triton(tool)
    if tool == "triton-sanitizer":
        if importlib.util.find_spec("triton_viz") is None:
            hint = "`pip install triton-viz`; --under interpret checks each address without it."
            raise no_tool(tool, "triton-viz is not installed", hint)
        found = shutil.which("triton-sanitizer") or "triton-sanitizer"
        note = (
            "triton-viz proves for each access that it is inside of its tensor, or says where not."
        )
        return run_triton(
            tool, directory, arguments, timeout, {}, note, prefix=(sys.executable, found)
        )
    backends = (triton / "backends").glob("*/compiler.py")
    if not any("fpsan" in file.read_text(encoding="utf-8") for file in backends):
        raise no_tool(
            tool,
            "the Triton that is installed has no FpSan",
            "It came after Triton 3.6 (triton-lang/triton#9337): install a later one.",
        )
    _require_device(tool)
    environment = {"TRITON_INSTRUMENTATION_MODE": "fpsan"}
    return run_triton(tool, directory, arguments, timeout, environment, _FPSAN)


def _require_device(tool: Tool) -> None:
    import torch

    if not torch.cuda.is_available():
        hint = "Run it on the machine of the program; interpret and asan need no GPU."
        raise no_tool(tool, "there is no CUDA device", hint)


def _compute_sanitizer(
    directory: Path, arguments: Mapping[str, str], timeout: float
) -> UnderResult:
    found = shutil.which("compute-sanitizer") or (str(_TOOLKIT) if _TOOLKIT.is_file() else None)
    if found is None:
        raise no_tool(
            "compute-sanitizer",
            "compute-sanitizer is not installed",
            "It is part of the CUDA toolkit: put its bin directory on PATH, or install the package "
            "cuda-sanitizer-api (conda: nvidia).",
        )
    _require_device("compute-sanitizer")
    options = ["--tool", "memcheck", "--error-exitcode", "9", "--print-limit", "20"]
    script = str(directory / "repro.py")
    host = [sys.executable, str(launches.__file__), "addresses", script, str(directory)]
    command = [found, *options, *host]
    ran = execute("compute-sanitizer", command, directory, timeout, _WITHOUT_CACHE)
    output = ran.stdout + ran.stderr
    findings = tuple(_findings(output, arguments))
    if not findings and ran.returncode:
        findings = (Finding("crash", last_line(output)),)
    return UnderResult("compute-sanitizer", findings, again(_WITHOUT_CACHE, command), output)


def _findings(output: str, arguments: Mapping[str, str]) -> Iterator[Finding]:
    """What memcheck reported, each line of a kernel once."""
    matches = list(_FAULT.finditer(output))
    known = {
        name: Memory(int(start, 16), int(size) // max(1, int(item)), max(1, int(item)))
        for name, start, size, item in _ARGUMENT.findall(output)
    }
    seen: set[tuple[str, str, int]] = set()
    for match, following in zip_longest(matches, matches[1:]):
        report = output[match.start() : following.start() if following else len(output)]
        line, at = _LINE.search(report), _AT.search(report)
        file, number = (line[1], int(line[2])) if line else ("", 0)
        if (match["what"], file, number) in seen:
            continue
        seen.add((match["what"], file, number))
        place = nearest(known.items(), int(at[1], 16)) if at else None
        name, element = place[1:] if place else ("", None)
        yield Finding(
            match["what"], f"of {match['size']} bytes" if match["size"] else "reported", file,
            number, _text(file, number), name, arguments.get(name, ""), element,
            known[name].size if name else None,
        )  # fmt: skip


def _text(file: str, number: int) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return line_of(text.splitlines(), number)
