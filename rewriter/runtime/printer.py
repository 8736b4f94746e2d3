"""Writes what the probes of a wrapper print, and the runtime's warnings."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .event import Event
from .event_queue import drain_queue
from .process import read_rank, say
from .text import Text, Upstream, start


@dataclass(frozen=True)
class Stdout:
    """Standard output as a file."""

    descriptor: int  # -1 if nothing is to be printed
    flush: Callable[[], None]  # writes out what the program printed itself


class Printer:
    """Standard output and standard error of one wrapper. `style` formats events as text."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.rank = read_rank()
        self.is_upstream = options["format"] == "upstream"
        # A file that was instrumented by an earlier version has fewer options.
        self.label: str = options.get("label", "")
        self.style = (
            Upstream() if self.is_upstream else Text(self.rank, options["values"], self.label)
        )
        quiet = os.environ.get("REWRITER_QUIET", "0") not in ("", "0")
        self._is_quiet = quiet or bool(options.get("quiet"))
        self._warned: set[str] = set()

    def file(self) -> Stdout | None:
        """Standard output as a file. None if `sys.stdout` is not a plain UTF-8 file, as in a
        notebook: then lines have to be written through it."""
        stream = sys.stdout
        if self._is_quiet or stream is None:  # None: the process has no standard output
            return Stdout(-1, lambda: None)
        if (
            not isinstance(stream, io.TextIOWrapper)
            or type(stream).write is not io.TextIOWrapper.write
            or stream.encoding.lower() != "utf-8"
        ):
            return None
        try:
            return Stdout(stream.fileno(), stream.flush)
        except (OSError, ValueError):
            return None

    def write(self, lines: list[str]) -> None:
        """Write lines to standard output in one piece and flush: the next launch may crash."""
        if self._is_quiet or not lines or sys.stdout is None:
            return
        drain_queue()
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def warn(self, about: str, message: str) -> None:
        """Write a warning to standard error, unless the same message was written before.

        Messages that differ only in paths and numbers count as the same. `about` names the launch
        or part, such as `#12`.
        """
        text = re.sub(r"(?<!\S)\S*/\S*|\d+", "", message)
        if text not in self._warned:
            self._warned.add(text)
            say(f"[rewriter {self.rank}] warning: {about}: {message}\n")

    def about(self, event: Event) -> str:
        """The beginning of a line about a whole launch: `[rewriter 0] #12 KERNEL`."""
        begin = start(self.rank, self.label, event.call)
        if event.launch is None:
            return f"{begin} {event.phase}"
        again = f".{event.iteration}" if event.iteration else ""
        return f"{begin} #{event.launch.index}{again} {event.launch.kernel}"
