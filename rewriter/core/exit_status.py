"""How a program ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rewriter.core.printed import printed

if TYPE_CHECKING:
    from rewriter.core.documents import Count

# Where a program was, as far as its stack tells.
Scope = Literal["", "compiled", "compiling", "outside"]


@printed(
    "code signal=signal_name timed_out interrupted=interrupt_name message place scope check stacks"
)
@dataclass(frozen=True)
class ExitStatus:
    """How a program ended: its exit code, `None` if a signal or the time limit ended it.

    `message` is the text of the exception, if it raised one, or says what the time limit was; with
    SIGABRT it is what an allocator complained of, if that was heard. `check` is the check of an
    index that failed in a kernel. `place` says where it was, such as `at train.py:11 in load,
    outside of compiled code`, in a `scope`; of several processes, `stacks` has a line for each.
    `timed_out` and `interrupted` say that this command ended it: at its time limit, or because this
    command received that signal. A program that is `running` has not ended.
    """

    code: int | None
    signal: Count = 0
    timed_out: bool = False
    message: str = ""
    interrupted: int = 0
    running: bool = False
    place: str = ""
    scope: Scope = ""
    check: str = ""
    stacks: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: int) -> ExitStatus:
        """From the exit code of a process, negative for a signal."""
        return cls(code) if code >= 0 else cls(None, signal=-code)

    @property
    def signal_name(self) -> str:
        return signal_name(self.signal)

    @property
    def interrupt_name(self) -> str:
        return signal_name(self.interrupted)

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
        if self.signal:
            return f"signal {signal_name(self.signal)}"
        plain = "stopped at the time limit" if self.timed_out else f"exit code {self.code}"
        return " ".join(filter(None, (first_line(self.message) or plain, self.place)))


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
