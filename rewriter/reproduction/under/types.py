"""What a tool says of one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tool = Literal["asan", "interpret", "compute-sanitizer", "triton-sanitizer", "fpsan"]


@dataclass(frozen=True)
class Finding:
    """One fault. `line` counts from 1 in the kernel's `file`, 0 where the tool does not say.

    `parameter` is that of the kernel, `argument` the dump's name of what it was given; `element`
    counts in memory from the first element that the launch was handed, `size` elements are there.
    """

    kind: str
    message: str
    file: str = ""
    line: int = 0
    text: str = ""
    parameter: str = ""
    argument: str = ""
    element: int | None = None
    size: int | None = None

    @property
    def headline(self) -> str:
        """One sentence: what happened to which argument."""
        if not self.parameter:
            return f"{self.kind}: {self.message}"
        place = "" if self.element is None else f"[{self.element}]"
        named = f", which is {self.argument}" if self.argument else ""
        held = "" if self.size is None else f" ({self.size:,} elements)"
        return f"{self.kind}: {self.message} at {self.parameter}{place}{named}{held}"


@dataclass(frozen=True)
class UnderResult:
    """What came of a run under a tool. `command` runs the tool once more; `output` is all it
    printed."""

    tool: Tool
    findings: tuple[Finding, ...]
    command: str
    output: str
    note: str = ""
