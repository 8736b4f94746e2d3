"""What the probes of one wrapper print, and what the runtime warns about."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from .event import Event
from .process import read_rank, say
from .text import Text, Upstream, start


class Printer:
    """Standard output and standard error of one wrapper. `style` is how events read as text."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.rank = read_rank()
        self.is_upstream = options["format"] == "upstream"
        # A file that was instrumented by an earlier version has fewer options.
        self._label: str = options.get("label", "")
        self.style = (
            Upstream() if self.is_upstream else Text(self.rank, options["values"], self._label)
        )
        self._is_quiet = os.environ.get("REWRITER_QUIET", "0") not in ("", "0")
        self._warned: set[str] = set()

    def write(self, lines: list[str]) -> None:
        """Write to standard output in one piece, flushed: what follows may crash."""
        if self._is_quiet:
            return
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def warn(self, about: str, message: str) -> None:
        """Write a warning to standard error, once, about the first launch that it concerns.

        Two messages that differ only in paths and numbers are the same message.
        """
        text = re.sub(r"(?<!\S)\S*/\S*|\d+", "", message)
        if text not in self._warned:
            self._warned.add(text)
            say(f"[rewriter {self.rank}] warning: {about}: {message}\n")

    def about(self, event: Event) -> str:
        """The start of a line about a launch as a whole: `[rewriter 0] #12 KERNEL`."""
        begin = start(self.rank, self._label, event.call)
        if event.launch is None:
            return f"{begin} {event.phase}"
        again = f".{event.iteration}" if event.iteration else ""
        return f"{begin} #{event.launch.index}{again} {event.launch.kernel}"
