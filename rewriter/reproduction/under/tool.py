"""A tool that watches one launch: how it is run, what it says, and the errors where it cannot."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from rewriter.core.documents import Count
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.printed import printed
from rewriter.core.text import counted

_T = TypeVar("_T")
Tool = Literal["asan", "interpret", "compute-sanitizer", "triton-sanitizer", "fpsan"]


@dataclass(frozen=True)
class Finding:
    """One fault. `line` counts from 1 in the kernel's `file`, 0 where the tool does not say.

    `parameter` is that of the kernel, `argument` the dump's name of what it was given; `element`
    counts in memory from the first element that the launch was handed, `size` elements are there.
    If it `is_own`, `parameter` is an array of the kernel's own, and `last` the last element outside
    of it that the kernel writes; `None` if that is not known.
    """

    kind: str
    message: str
    file: str = ""
    line: Count = 0
    text: str = ""
    parameter: str = ""
    argument: str = ""
    element: int | None = None
    size: Count | None = None
    is_own: bool = False
    last: int | None = None

    @property
    def headline(self) -> str:
        """One sentence: what happened to which argument."""
        if self.is_own:
            return f"{self.kind}: {self.of_own_array}"
        if not self.parameter:
            return f"{self.kind}: {self.message}"
        place = "" if self.element is None else f"[{self.element}]"
        named = f", which is {self.argument}" if self.argument else ""
        held = "" if self.size is None else f" ({counted(self.size, 'element', grouped=True)})"
        return f"{self.kind}: {self.message} at {self.parameter}{place}{named}{held}"

    @property
    def of_own_array(self) -> str:
        """What happened to an array of the kernel's own."""
        first, last = self.element, self.last
        if first is None:
            return f"{self.message} outside of its own array {self.parameter}"
        of = f"its own array of {self.size:,}, {self.parameter}"
        if last is None or last <= first:
            verb = self.message.partition(" ")[0]
            return f"{verb} element {first if last is None else last:,} of {of}"
        return f"writes elements {first:,} to {last:,} of {of}"


@printed("tool findings command note")
@dataclass(frozen=True)
class UnderResult:
    """What came of a run under a tool. `command` runs the tool once more; `output` is all it
    printed."""

    tool: Tool
    findings: tuple[Finding, ...]
    command: str
    output: str
    note: str = ""


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


def again(environment: Mapping[str, str], command: Sequence[str]) -> str:
    """What a user types to run a command once more."""
    return " ".join(
        [*(f"{name}={value}" for name, value in environment.items()), shlex.join(command)]
    )


class Memory(NamedTuple):
    """The elements of an argument: the address of the first, how many, and the bytes of one."""

    start: int
    size: int
    item: int


def nearest(known: Iterable[tuple[_T, Memory]], address: int) -> tuple[int, _T, int] | None:
    """What lies nearest to an address: how many bytes away, what it is, and the element of it."""
    best: tuple[int, _T, int] | None = None
    for what, memory in known:
        end = memory.start + memory.size * memory.item
        distance = max(memory.start - address, address - end + 1, 0)
        if best is None or distance < best[0]:
            best = distance, what, (address - memory.start) // memory.item
    return best


def line_of(lines: Sequence[str], number: int) -> str:
    """A line by its number from 1; empty if there is none."""
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def no_tool(tool: str, problem: str, hint: str) -> RewriterError:
    """The error for a tool that is not installed, or does not work here."""
    return RewriterError(
        "no-sanitizer",
        f"--under {tool}: {problem}",
        hint=hint or "The script itself was written, and runs without the tool.",
        code=FAILED,
    )


def not_for(tool: str, why: str) -> RewriterError:
    """The error for a launch that a tool has nothing to say of."""
    return RewriterError(
        "wrong-sanitizer",
        f"--under {tool}: {why}",
        hint="asan is for kernels in C++; interpret, triton-sanitizer and fpsan are for kernels of "
        "Triton; compute-sanitizer is for all that runs on a CUDA device.",
    )
