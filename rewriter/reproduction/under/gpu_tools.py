"""Tools for kernels of Triton, and for a CUDA device: Triton's interpreter, triton-viz, Triton's
FpSan, and compute-sanitizer."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.text import of_elements
from rewriter.core.types import Json
from rewriter.reproduction.under.host import launches, triton_kernel
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
    not_for,
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
_KERNEL, _RESULT = "kernel.py", "result.json"
_NOTE = (
    "Triton's interpreter runs the kernel on the CPU, with blocks that are chosen here: what the "
    "compiler does to it is not seen."
)


def require_triton(tool: Tool) -> Path:
    """Where Triton is. Raises `RewriterError` where it is not."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise no_tool(
            tool,
            "Triton is not installed",
            "`pip install triton` beside torch; its interpreter needs no GPU.",
        )
    return Path(spec.origin).parent


def _run_triton(
    tool: Tool,
    directory: Path,
    arguments: Mapping[str, str],
    timeout: float,
    environment: Mapping[str, str],
    note: str,
    prefix: tuple[str, ...] = (sys.executable,),
) -> UnderResult:
    """Run the kernel as plain Triton in a process of its own, and read what it left."""
    folder = directory / tool
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    mode = {"interpret": "interpret", "fpsan": "fpsan"}.get(tool, "sanitize")
    host = str(triton_kernel.__file__)
    command = [*prefix, host, str(directory / "repro.py"), str(folder), mode]
    ran = execute(tool, command, directory, timeout, environment)
    typed = again(environment, command)
    output = ran.stdout + ran.stderr
    if not (folder / _RESULT).is_file():
        if tool == "triton-sanitizer" and "out-of-bound" in output.lower():
            return UnderResult(tool, (Finding("out of bounds", _sentence(output)),), typed, output)
        raise no_tool(tool, f"the kernel does not run so: {last_line(ran.stderr)}", f"Try: {typed}")
    document = json_text.parse_object((folder / _RESULT).read_bytes())
    if not document["kernels"]:
        raise not_for(tool, "it runs kernels of Triton, and this launch has none")
    text = (folder / _KERNEL).read_text(encoding="utf-8").splitlines()
    return UnderResult(
        tool, tuple(_triton_findings(tool, document, text, arguments)), typed, output, note
    )


def _sentence(output: str) -> str:
    found = (x.strip() for x in output.splitlines() if "out-of-bound" in x.lower())
    return next(found, "an address outside of all tensors")


def _triton_findings(
    tool: Tool, document: Json, text: list[str], arguments: Mapping[str, str]
) -> Iterator[Finding]:
    for fault in document["faults"]:
        variable = document["variables"].get(fault["parameter"], "")
        line = fault["line"]
        yield Finding(
            fault["kind"],
            fault["message"],
            f"{tool}/{_KERNEL}",
            line,
            line_of(text, line),
            fault["parameter"],
            arguments.get(variable, ""),
            fault["element"],
            fault["size"],
        )
    if document["faults"]:
        return
    for row in document["results"]:
        if tool == "fpsan" and not row["same"]:
            yield Finding(
                "another formula",
                f"{row['name']} depends on the size of the blocks by more than the order of "
                "additions",
            )
        if row.get("differs"):
            yield Finding(
                "differs from the record",
                f"{row['name']}: {of_elements(row['wrong'], row['of'])}, by {row['error']} at "
                f"most, where the largest is {row['scale']}",
            )


def run(
    tool: Tool, directory: Path, arguments: Mapping[str, str], *, timeout: float
) -> UnderResult:
    """Run a `repro.py` under one of these tools. `arguments` gives the dump's name of an argument
    for its variable in the script. Raises `RewriterError` where the tool is not there, or the
    launch is none of a Triton kernel."""
    if tool == "compute-sanitizer":
        return _compute_sanitizer(directory, arguments, timeout)
    triton = require_triton(tool)
    if tool == "interpret":
        settings = {"TRITON_INTERPRET": "1"}
        return _run_triton(tool, directory, arguments, timeout, settings, _NOTE)
    if tool == "triton-sanitizer":
        if importlib.util.find_spec("triton_viz") is None:
            hint = "`pip install triton-viz`; --under interpret checks each address without it."
            raise no_tool(tool, "triton-viz is not installed", hint)
        found = shutil.which("triton-sanitizer") or "triton-sanitizer"
        note = (
            "triton-viz proves for each access that it is inside of its tensor, or says where not."
        )
        return _run_triton(
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
    return _run_triton(tool, directory, arguments, timeout, environment, _FPSAN)


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
