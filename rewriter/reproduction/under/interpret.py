"""A Triton kernel in Triton's interpreter, with triton-viz, or with Triton's FpSan."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.text import of_elements
from rewriter.core.types import Json
from rewriter.reproduction.under.host import triton_kernel
from rewriter.reproduction.under.tool import (
    Finding,
    Tool,
    UnderResult,
    again,
    execute,
    last_line,
    line_of,
    no_tool,
    not_for,
)

_KERNEL, _RESULT = "kernel.py", "result.json"
_NOTE = (
    "Triton's interpreter runs the kernel on the CPU, with blocks that are chosen here: what the "
    "compiler does to it is not seen."
)


def run(directory: Path, arguments: Mapping[str, str], *, timeout: float) -> UnderResult:
    """Run the Triton kernel of a `repro.py` in the interpreter, each address of it checked.

    `arguments` gives the dump's name of an argument for its variable in the script. Raises
    `RewriterError` where Triton is not there, or the launch is none of a Triton kernel.
    """
    require_triton("interpret")
    return run_triton("interpret", directory, arguments, timeout, {"TRITON_INTERPRET": "1"}, _NOTE)


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


def run_triton(
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
    return UnderResult(tool, tuple(_findings(tool, document, text, arguments)), typed, output, note)


def _sentence(output: str) -> str:
    found = (x.strip() for x in output.splitlines() if "out-of-bound" in x.lower())
    return next(found, "an address outside of all tensors")


def _findings(
    tool: Tool, document: Json, text: list[str], arguments: Mapping[str, str]
) -> Iterator[Finding]:
    for one in document["faults"]:
        variable = document["variables"].get(one["parameter"], "")
        line = one["line"]
        yield Finding(
            one["kind"],
            one["message"],
            f"{tool}/{_KERNEL}",
            line,
            line_of(text, line),
            one["parameter"],
            arguments.get(variable, ""),
            one["element"],
            one["size"],
        )
    if document["faults"]:
        return
    for one in document["results"]:
        if tool == "fpsan" and not one["same"]:
            yield Finding(
                "another formula",
                f"{one['name']} depends on the size of the blocks by more than the order of "
                "additions",
            )
        if one.get("differs"):
            yield Finding(
                "differs from the record",
                f"{one['name']}: {of_elements(one['wrong'], one['of'])}, by {one['error']} at "
                f"most, where the largest is {one['scale']}",
            )
