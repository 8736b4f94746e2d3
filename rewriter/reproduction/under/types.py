"""What a tool says of one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewriter.core.documents import Count
from rewriter.core.printed import printed
from rewriter.core.text import counted

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
