"""How a program ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class ExitStatus:
    """How a program ended: its exit code, `None` if a signal or the time limit ended it.

    `message` is the text of the exception, if it raised one, and where, or says what the time limit
    was, and where each process was then; with SIGABRT it is what an allocator complained of, or the
    check that failed in a kernel, if that was heard.
    `timed_out` and `interrupted` say that this command ended it: at its time limit, or because this
    command received that signal. A program that is `running` has not ended.
    """

    code: int | None
    signal: int = 0
    timed_out: bool = False
    message: str = ""
    interrupted: int = 0
    running: bool = False

    @classmethod
    def of(cls, code: int) -> ExitStatus:
        """From the exit code of a process, negative for a signal."""
        return cls(code) if code >= 0 else cls(None, signal=-code)

    @property
    def stopped(self) -> bool:
        """Whether this command ended the program."""
        return self.timed_out or self.interrupted != 0

    @property
    def raised(self) -> bool:
        """Whether it ended by an exception of Python's."""
        return self.code is not None and not self.stopped and bool(self.message)

    def __str__(self) -> str:
        """As one line of text."""
        if self.running:
            return self.message
        if self.interrupted:
            by = f" by {signal_name(self.interrupted)}"
            return "interrupted" + by * (self.interrupted != signal.SIGINT)
        if self.timed_out:
            return first_line(self.message) or "stopped at the time limit"
        if self.signal:
            return f"signal {signal_name(self.signal)}"
        return first_line(self.message) or f"exit code {self.code}"


def first_line(text: str) -> str:
    """The first line of a text that is not blank."""
    return text.strip().partition("\n")[0]


def signal_name(number: int) -> str:
    """The name of a signal, such as `SIGTERM`; empty for 0, which means none."""
    if number == 0:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
